// SPDX-License-Identifier: Apache-2.0
// `gnmr train` and `gnmr recipes` as users meet them: flags, messages, signals.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "apps/program_run.h"
#include "apps/train/train_program.h"
#include "io/file_size_limit.h"

namespace gnmr::testing {
namespace {

using Flags = std::vector<std::string>;

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// The flags with another value of one of them.
Flags changed(Flags flags, const std::string& flag, const std::string& value) {
  *std::next(std::find(flags.begin(), flags.end(), flag)) = value;
  return flags;
}

TEST(TrainCommand, WrongFlagsAreNamed) {
  const auto usage = [](const std::string& flags, const std::string& word) {
    const ProgramRun done = run_gnmr("train " + flags);
    EXPECT_EQ(done.status, 2) << flags << "\n" << done.err;
    EXPECT_TRUE(contains(done.err, word)) << flags << "\n" << done.err;
  };
  usage("--steps 0", "steps");
  usage("--steps many", "--steps");
  usage("--stepz 3", "--stepz");
  usage("--controller maybe", "none, gnmr, watch");
  usage("--granularity tensor", "layer, product, block");
  usage("--faults fire", "saturate, overflow");
  usage("--set 'q=up'", "GLOB=high");
  usage("--tau 0.5", "tau");
  usage("--recipe fp9", "fp8-delayed");
  usage("--held-out 1.5", "held_out");
  const ProgramRun help = run_gnmr("train --help");
  EXPECT_EQ(help.status, 0);
  for (const char* const flag : {"--recipe", "--resume", "--save-activations", "--max-o", "--random-units"}) {
    EXPECT_TRUE(contains(help.out, flag)) << flag;
  }
}

TEST(TrainCommand, UnusableInputAndAMissingEngineAreNamed) {
  const TrainFolder folder;
  const ProgramRun missing = run_gnmr("train --data " + folder.file("none.txt") + " --out " + folder.file("run"));
  EXPECT_EQ(missing.status, 3) << missing.err;
  EXPECT_TRUE(contains(missing.err, "none.txt")) << missing.err;
  const ProgramRun model = run_gnmr("train --model nanno --out " + folder.file("run"));
  EXPECT_EQ(model.status, 3) << model.err;
  EXPECT_TRUE(contains(model.err, "nano")) << model.err;
  EXPECT_FALSE(std::filesystem::exists(folder.file("run")));
  const ProgramRun engine = run_gnmr("train", "GNMR_ENGINE=/nonexistent/engine.so");
  EXPECT_EQ(engine.status, 3) << engine.err;
  EXPECT_TRUE(contains(engine.err, "/nonexistent/engine.so")) << engine.err;
  EXPECT_TRUE(contains(engine.err, "make build")) << engine.err;
  const ProgramRun other = run_gnmr("train", "GNMR_ENGINE=" + folder.file("text.txt"));
  EXPECT_EQ(other.status, 3) << other.err;
  EXPECT_TRUE(contains(other.err, "could not be loaded")) << other.err;
}

TEST(TrainCommand, TellsWhatItDoes) {
  const TrainFolder folder;
  ASSERT_EQ(folder.run(folder.flags("run", 40)).status, 0) << folder.log();
  const std::string log = folder.log();
  for (const char* const part : {"million parameters", "fp8-delayed", "14 of 15 linear layers", "INJECTED",
                                 "at most 3 of 14 in recovery", "step 40/40", "held-out loss", "gnmr report"}) {
    EXPECT_TRUE(contains(log, part)) << part << "\n" << log;
  }
  EXPECT_EQ(metrics_of(folder.file("run")).train.size(), 40u);
  // A folder with a run is not written to again.
  EXPECT_EQ(folder.run(folder.flags("run", 40)).status, 3);
  EXPECT_TRUE(contains(folder.log(), "--resume")) << folder.log();
  // Other settings are refused by name.
  EXPECT_EQ(folder.run(with(folder.flags("run", 40), {"--resume", "--lr", "0.5", "--seed", "3"})).status, 3);
  EXPECT_TRUE(contains(folder.log(), "seed, lr")) << folder.log();
  ASSERT_EQ(folder.run(with(folder.flags("quiet", 3), {"-q"})).status, 0);
  EXPECT_EQ(folder.log(), "");
}

TEST(TrainCommand, SignalsSwitchAndStopARun) {
  const TrainFolder folder;
  const std::string run = folder.file("run");
  const std::string metrics = run + "/metrics.jsonl";
  const Flags flags = with(folder.flags("run", 100000), {"--checkpoint-every", "0"});
  {
    TrainProgram program(flags, folder.file("log"));
    const auto after = [&](std::size_t steps) {
      const std::size_t goal = lines_in(metrics) + steps;
      return program.wait_until([&] { return lines_in(metrics) >= goal; });
    };
    ASSERT_TRUE(after(5)) << folder.log();
    program.send(SIGUSR2);
    ASSERT_TRUE(after(20));
    program.send(SIGUSR1);
    ASSERT_TRUE(after(20));
    test::put_file(run + "/control", "armed");
    ASSERT_TRUE(after(20));
    // A second process may not write the same run.
    EXPECT_EQ(folder.run(with(flags, {"--resume"}), "second").status, 3);
    EXPECT_TRUE(contains(folder.log("second"), "another process")) << folder.log("second");
    program.send(SIGTERM);
    const Ended ended = program.wait();
    EXPECT_EQ(ended.status, 5) << folder.log();
  }
  EXPECT_TRUE(contains(folder.log(), "--resume goes on")) << folder.log();
  const run::Metrics seen = metrics_of(run);
  std::vector<Mode> modes;
  for (const io::JournalMode& mode : io::read_journal(run + "/journal.jsonl").modes) modes.push_back(mode.mode);
  EXPECT_EQ(modes, (std::vector<Mode>{Mode::high, Mode::watch, Mode::armed}));
  const auto all_high =
      std::count_if(seen.train.begin(), seen.train.end(), [](const run::TrainLine& line) { return line.high == 14; });
  EXPECT_GE(all_high, 10);
  EXPECT_LT(all_high, static_cast<std::ptrdiff_t>(seen.train.size()) - 20);
  // The checkpoint is that of the last step, and the run goes on from it.
  const std::int64_t last = seen.train.back().step;
  char name[32];
  std::snprintf(name, sizeof name, "/checkpoints/step-%08lld", static_cast<long long>(last));
  EXPECT_TRUE(std::filesystem::exists(run + name)) << name;
  const std::size_t told = lines_in(metrics);
  TrainProgram again(with(flags, {"--resume"}), folder.file("again"));
  EXPECT_TRUE(again.wait_until([&] { return lines_in(metrics) > told + 3; })) << folder.log("again");
  again.send(SIGINT);
  EXPECT_EQ(again.wait().status, 5);
  EXPECT_TRUE(contains(folder.log("again"), "goes on with step " + std::to_string(last + 1))) << folder.log("again");
}

TEST(TrainCommand, OneCommandStartsAndContinuesARun) {
  const TrainFolder folder;
  const std::string run = folder.file("run");
  const Flags flags = with(folder.flags("run", 100000), {"--checkpoint-every", "0", "--resume"});
  {
    TrainProgram program(flags, folder.file("log"));
    ASSERT_TRUE(program.wait_until([&] { return lines_in(run + "/metrics.jsonl") >= 3; })) << folder.log();
    EXPECT_TRUE(contains(folder.log(), "there is no run to resume")) << folder.log();
    program.send(SIGHUP);  // the terminal is gone
    EXPECT_EQ(program.wait().status, 5) << folder.log();
  }
  const std::int64_t last = metrics_of(run).train.back().step;
  TrainProgram again(flags, folder.file("again"));
  ASSERT_TRUE(again.wait_until([&] { return metrics_of(run).train.back().step > last; })) << folder.log("again");
  again.send(SIGTERM);
  EXPECT_EQ(again.wait().status, 5);
  EXPECT_TRUE(contains(folder.log("again"), "goes on with step " + std::to_string(last + 1))) << folder.log("again");
}

TEST(TrainCommand, ALastCheckpointThatCannotBeWrittenIsAnError) {
  const TrainFolder folder;
  const std::string run = folder.file("run");
  TrainProgram program(with(folder.flags("run", 2000), {"--checkpoint-every", "100", "--checkpoint-retry", "0"}),
                       folder.file("log"));
  ASSERT_TRUE(program.wait_until([&] { return std::filesystem::exists(run + "/checkpoints/step-00000100"); }));
  // Nothing can be made in what is no folder; what was good stays, elsewhere.
  std::filesystem::rename(run + "/checkpoints", run + "/aside");
  test::put_file(run + "/checkpoints", "no folder");
  EXPECT_EQ(program.wait().status, 4) << folder.log();
  EXPECT_FALSE(contains(folder.log(), "done in")) << folder.log();
  EXPECT_TRUE(contains(folder.log(), "NOT SAVED")) << folder.log();
  EXPECT_TRUE(contains(folder.log(), "step-00002000")) << folder.log();
  EXPECT_TRUE(contains(folder.log(), "no step of this run is saved")) << folder.log();
  // With room again the same command goes on from the newest good one.
  std::filesystem::remove(run + "/checkpoints");
  std::filesystem::rename(run + "/aside", run + "/checkpoints");
  EXPECT_EQ(folder.run(with(folder.flags("run", 2000), {"--checkpoint-every", "100", "--resume"}), "again").status, 0);
  EXPECT_TRUE(contains(folder.log("again"), "goes on with step")) << folder.log("again");
}

TEST(TrainCommand, AFolderThatCannotBeWrittenIsAnOutputErrorAndARetryWorks) {
  const TrainFolder folder;
  EXPECT_EQ(folder.run(changed(folder.flags("run", 3), "--out", "/proc/gnmr-run")).status, 4) << folder.log();
  EXPECT_TRUE(contains(folder.log(), "/proc/gnmr-run")) << folder.log();
  {
    const test::FileSizeLimit full(0);  // for the program too, and for its messages
    EXPECT_EQ(folder.run(folder.flags("run", 3)).status, 4);
  }
  EXPECT_EQ(folder.run(folder.flags("run", 3)).status, 0) << folder.log();
}

TEST(TrainCommand, AModelThatCannotFitIsRefusedAtOnce) {
  const TrainFolder folder;
  test::put_file(folder.file("huge.json"), R"({"model_type":"llama","architectures":["LlamaForCausalLM"],
    "vocab_size":32000,"hidden_size":65536,"intermediate_size":262144,"num_hidden_layers":4000,
    "num_attention_heads":512,"num_key_value_heads":512,"head_dim":128,"max_position_embeddings":64,
    "rms_norm_eps":1e-5,"rope_theta":10000,"tie_word_embeddings":false,"hidden_act":"silu"})");
  EXPECT_EQ(folder.run(changed(folder.flags("run", 3), "--model", folder.file("huge.json"))).status, 3);
  EXPECT_TRUE(contains(folder.log(), "does not fit in memory: it needs at least ")) << folder.log();
  EXPECT_TRUE(contains(folder.log(), "GiB (16 bytes for each of")) << folder.log();
  EXPECT_FALSE(std::filesystem::exists(folder.file("run"))) << "nothing was made";
}

TEST(TrainCommand, WhatARunRecordsCanBeTunedAndExplained) {
  const TrainFolder folder;
  std::vector<std::string> flags{"--model", folder.file("config.json"), "--data", folder.file("text.txt"),
                                 "--out",   folder.file("run")};
  for (const char* const flag : {"--steps",       "40", "--batch",  "4",        "--sequence",     "16",
                                 "--threads",     "1",  "--norms",  "--errors", "--recipe",       "fp8-tensorwise",
                                 "--patrol",      "1",  "--faults", "overflow", "--fault-from",   "25",
                                 "--fault-every", "4",  "--max-o",  "3",        "--eval-batches", "1"}) {
    flags.emplace_back(flag);
  }
  ASSERT_EQ(folder.run(flags).status, 0) << folder.log();
  const std::string run = folder.file("run");
  const ProgramRun tuned = run_gnmr("tune --trace " + run + "/norms.csv --evidence " + run + "/errors.csv --truth " +
                                    run + "/faults.csv --out " + folder.file("tune.html"));
  EXPECT_EQ(tuned.status, 0) << tuned.err;
  EXPECT_TRUE(contains(tuned.out + tuned.err, "error_factor")) << tuned.out;
  const ProgramRun story = run_gnmr("explain " + run);
  EXPECT_EQ(story.status, 0) << story.err;
  EXPECT_TRUE(contains(story.out, "numeric")) << story.out;
  EXPECT_TRUE(contains(story.out, "alarm by patrol: ")) << story.out;
  EXPECT_EQ(run_gnmr("replay " + run + "/norms.csv -q").status, 0);
}

TEST(TrainCommand, RivalsAndOraclesWantToBeAlone) {
  const TrainFolder folder;
  for (const std::vector<std::string>& flags : {std::vector<std::string>{"--rival", "zclip"},
                                                {"--oracle", "--granularity", "block"},
                                                {"--selector", "evidence", "--patrol", "0"},
                                                {"--guard", "clip", "--granularity", "product"}}) {
    EXPECT_NE(folder.run(with(folder.flags("refused", 4), flags)).status, 0) << flags[0];
  }
  EXPECT_EQ(folder.run(with(folder.flags("rival", 4), {"--rival", "zclip:z=3", "--controller", "watch"})).status, 0)
      << folder.log();
}

TEST(TrainCommand, RecipesAreListedPrintedAndChecked) {
  const TrainFolder folder;
  const ProgramRun list = run_gnmr("recipes");
  EXPECT_EQ(list.status, 0);
  for (const char* const name : {"none", "bf16", "fp8-deepseek", "nvfp4-hadamard"}) {
    EXPECT_TRUE(contains(list.out, name)) << name;
  }
  const ProgramRun one = run_gnmr("recipes fp8-delayed");
  EXPECT_EQ(one.status, 0);
  test::put_file(folder.file("my.json"), one.out);
  const ProgramRun checked = run_gnmr("recipes " + folder.file("my.json"));
  EXPECT_EQ(checked.status, 0) << checked.err;
  EXPECT_TRUE(contains(checked.out, "fp8-delayed")) << checked.out;
  test::put_file(folder.file("my.json"), R"({"name":"x","input":{"format":"e4m4"}})");
  const ProgramRun broken = run_gnmr("recipes " + folder.file("my.json"));
  EXPECT_EQ(broken.status, 3);
  EXPECT_TRUE(contains(broken.err, "input.format")) << broken.err;
  EXPECT_NE(run_gnmr("recipes fp9").status, 0);
  EXPECT_EQ(run_gnmr("recipes", "GNMR_ENGINE=/nonexistent").status, 0) << "needs no engine";
}

}  // namespace
}  // namespace gnmr::testing
