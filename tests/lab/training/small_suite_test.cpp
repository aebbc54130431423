// SPDX-License-Identifier: Apache-2.0
// A whole suite with real training, as small as it can be: stop and resume included.
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/program_run.h"

namespace gnmr {
namespace {

using testing::ProgramRun;
using testing::read_file;
using testing::run_gnmr;
using testing::Scratch;

constexpr const char* kSmall =
    "lab stress --regime faults --seeds 0 1 --steps 30 --jobs 2 --threads 1 --train batch=2 sequence=32 eval_batches=1 "
    "checkpoint_every=5 fault_from=5 fault_every=4 --out ";

constexpr std::array kArms = {"high",      "low",         "gnmr",           "paper",         "random",
                              "norms",     "acute",       "no-faults",      "oracle",        "oracle-unlimited",
                              "standing",  "refresh",     "evidence-fixed", "patrol-replay", "random-total",
                              "down-high", "down-o-high", "ends-high",      "late-high"};

TEST(SmallSuite, AllArmsHaveResultsAndAReport) {
  const Scratch scratch;
  const ProgramRun run = run_gnmr(kSmall + scratch.path("out"));
  ASSERT_EQ(run.status, 0) << run.out << run.err;
  const std::string folder = scratch.path("out/faults");
  for (const char* arm : kArms) {
    for (const char* seed : {"0", "1"}) {
      const auto cell = nlohmann::json::parse(read_file(folder + "/cells/" + arm + "-seed" + seed + ".json"));
      EXPECT_EQ(cell["steps"], 30) << arm;
      EXPECT_EQ(cell["units"], 28) << arm;
      EXPECT_TRUE(cell["loss"].is_number()) << arm;
      EXPECT_GT(cell["step_ms"], 0) << arm;
    }
  }
  const auto ends = nlohmann::json::parse(read_file(folder + "/cells/ends-high-seed0.json"));
  EXPECT_NEAR(ends["high_mean"].get<double>(), 0.5, 1e-9);
  EXPECT_EQ(ends["share_mean"], 0);
  const auto summary = nlohmann::json::parse(read_file(folder + "/summary.json"));
  EXPECT_EQ(summary["rows"].size(), kArms.size());
  EXPECT_GT(std::filesystem::file_size(folder + "/report.html"), 10000U);
}

TEST(SmallSuite, FaultsAreMetAndTheirTablesAreMadeAgainFromAFile) {
  const Scratch scratch;
  const ProgramRun run = run_gnmr(
      "lab faults --fault saturate --arms none trial oracle --seeds 0 --steps 40 --jobs 2 --threads 1 --train batch=4 "
      "sequence=32 eval_batches=1 warmup=5 fault_from=25 fault_every=4 --out " +
      scratch.path("out") + " --collect " + scratch.path("cells.jsonl"));
  ASSERT_EQ(run.status, 0) << run.out << run.err;
  const auto cell = [&](const std::string& arm) {
    return nlohmann::json::parse(read_file(scratch.path("out/saturate/cells/" + arm + "-seed0.json")));
  };
  const auto none = cell("none")["harm"];
  EXPECT_GT(none["faults"], 0);
  EXPECT_EQ(none["met"], 0);
  EXPECT_GT(cell("oracle")["harm"]["covered"], 0);  // as many as its budget has room for
  EXPECT_EQ(cell("trial")["harm"]["faults"], none["faults"]);
  EXPECT_TRUE(cell("trial")["reruns"]["numeric"].is_number());
  EXPECT_FALSE(cell("none").contains("reruns"));
  const std::string tables = read_file(scratch.path("out/summary.md"));
  EXPECT_NE(tables.find("## saturate (cast)"), std::string::npos) << tables;
  const ProgramRun again =
      run_gnmr("lab faults --from " + scratch.path("cells.jsonl") + " --out " + scratch.path("again"));
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(read_file(scratch.path("again/summary.md")), tables);
}

TEST(SmallSuite, AStoppedSuiteGoesOn) {
  const Scratch scratch;
  const std::string command = kSmall + scratch.path("out") + " --arms high low gnmr --train steps=400";
  // It is told to stop while its first cells run.
  const ProgramRun stopped = run_gnmr(command, "timeout --foreground -s INT 4");
  EXPECT_NE(stopped.out.find("stopped; the same command with --resume goes on"), std::string::npos) << stopped.out;
  const ProgramRun run = run_gnmr(command + " --resume");
  ASSERT_EQ(run.status, 0) << run.out << run.err;
  for (const char* cell : {"high-seed0", "low-seed1", "gnmr-seed1"}) {
    EXPECT_TRUE(std::filesystem::exists(scratch.path(std::string("out/faults/cells/") + cell + ".json"))) << cell;
  }
  const ProgramRun again = run_gnmr(command + " --resume");
  EXPECT_EQ(again.status, 0);
  EXPECT_EQ(again.err.find("begins"), std::string::npos) << again.err;
}

TEST(SmallSuite, APlanIsCheckedByTheSameTrainingWithItsUnitsHigh) {
  const Scratch scratch;
  const std::string run_folder = scratch.path("measure");
  const ProgramRun measured = run_gnmr(
      "train --recipe int4-act --steps 30 --batch 2 --sequence 32 --warmup 5 --eval-batches 1 --patrol 1 --seed 3 "
      "--controller watch --threads 1 --always-high 'layers.1.*' --out " +
      run_folder);
  ASSERT_EQ(measured.status, 0) << measured.err;
  const std::string journal = read_file(run_folder + "/journal.jsonl");
  EXPECT_NE(journal.find(R"("sites":["forward","input_gradient","weight_gradient"])"), std::string::npos);
  const std::string suite = "plan " + run_folder +
                            " --max-o 2 --coarse-error 0.1 --coarse-factor 1.1 --check --steps 12 --seeds 3 4 --jobs 2 "
                            "--threads 1 ";
  const ProgramRun run = run_gnmr(suite);
  ASSERT_EQ(run.status, 0) << run.out << run.err;
  EXPECT_NE(run.out.find("measured, 2 seeds [95% interval]"), std::string::npos) << run.out;
  // The folder beside the run's, which the suite leaves alone.
  const auto cell = [&](const char* name) {
    return nlohmann::json::parse(read_file(run_folder + "-check/cells/" + name + ".json"));
  };
  EXPECT_EQ(cell("plan-seed4")["steps"], 12);
  EXPECT_NEAR(cell("low-seed3")["high_mean"].get<double>(), 7.0 / 28, 1e-9);
  EXPECT_NEAR(cell("plan-seed3")["high_mean"].get<double>(), 9.0 / 28, 1e-9);
  EXPECT_NE(cell("plan-seed3")["loss"], cell("low-seed3")["loss"]);
  // What finished is not run again; a program reads one JSON object.
  EXPECT_EQ(run_gnmr(suite).status, 2);
  const ProgramRun again = run_gnmr(suite + "--resume --json");
  ASSERT_EQ(again.status, 0) << again.err;
  const auto json = nlohmann::json::parse(again.out);
  EXPECT_EQ(json["high"].size(), 2U);
  EXPECT_EQ(json["check"]["seeds"], 2);
  const double above = (cell("plan-seed3")["loss"].get<double>() - cell("high-seed3")["loss"].get<double>() +
                        cell("plan-seed4")["loss"].get<double>() - cell("high-seed4")["loss"].get<double>()) /
                       2;
  EXPECT_NEAR(json["check"]["above_high"]["mean"].get<double>(), above, 1e-9);
  EXPECT_EQ(run_gnmr("plan " + run_folder + " --check --coarse-error 0.99").status, 3);  // nothing to check
}

}  // namespace
}  // namespace gnmr
