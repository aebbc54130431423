// SPDX-License-Identifier: Apache-2.0
#include "abuse/samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "abuse/same_run.h"
#include "apps/train/train_program.h"
#include "gnmr/core/error.h"
#include "gnmr/lab/fault_cells.h"
#include "gnmr/lab/fault_suite.h"
#include "gnmr/lab/suite.h"
#include "lab/fake_run.h"
#include "report/sample_run.h"

namespace gnmr::abuse {
namespace {

namespace fs = std::filesystem;

/// What `gnmr report` reads of a run.
constexpr std::array<const char*, 6> kReportedFiles{"run.json",    "metrics.jsonl", "journal.jsonl",
                                                    "signals.bin", "errors.bin",    "faults.csv"};
using test::content_of;
using test::put_file;

/// The first lines of a text.
std::string head_of(const std::string& text, std::size_t lines) {
  std::size_t end = 0;
  for (std::size_t line = 0; line < lines && end < text.size(); ++line) end = text.find('\n', end) + 1;
  return text.substr(0, end);
}

std::vector<std::string> files_under(const std::string& folder) {
  std::vector<std::string> files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) files.push_back(fs::relative(entry.path(), folder).string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

class SampleMaker {
 public:
  SampleMaker(const Settings& settings, std::string folder) : settings_(settings), folder_(std::move(folder)) {}

  void make_quick() {
    make_sample_run();
    make_suites();
    make_traces();
    make_logs();
    make_settings_files();
  }

  void make_trained();

  std::vector<Sample> quick;
  std::vector<Sample> trained;

 private:
  std::string made(const std::string& name) const {
    fs::create_directories(folder_ + "/" + name);
    return folder_ + "/" + name;
  }

  void add(const std::string& folder, const std::string& file, const Words& command) {
    quick.push_back({.name = fmt::format("{} of {}", command.front(), fs::path(file).filename().string()),
                     .folder = folder,
                     .file = file,
                     .command = command});
  }

  /// What the program says against a command; empty: it ends with status 0.
  std::string refusal_of(const std::string& folder, const Words& words) const {
    Words all{settings_.program};
    all.insert(all.end(), words.begin(), words.end());
    RunningCommand command(folder, all, {});
    const lab::ChildEnd end = command.wait();
    return end.good() ? std::string() : fmt::format("{}: {}: {}", shell_line(all), end.text(), command.err());
  }

  void must_run(const std::string& folder, const Words& words) const {
    const std::string refusal = refusal_of(folder, words);
    if (!refusal.empty()) throw Error(refusal);
  }

  void make_sample_run() {
    const std::string folder = made("sample-run");
    test::write_sample_run(folder + "/run", {.with_trials = true});
    for (const char* const file : kReportedFiles) {
      add(folder, std::string("run/") + file, {"report", "-q", "run"});
    }
    for (const char* const file : {"run.json", "metrics.jsonl", "journal.jsonl"}) {
      add(folder, std::string("run/") + file, {"explain", "run"});
    }
    add(folder, "run/journal.jsonl", {"explain", "--json", "run/journal.jsonl"});
    add(folder, "run/metrics.jsonl", {"replay", "run/metrics.jsonl"});
  }

  void make_suites() {
    const std::string folder = made("sample-suite");
    test::write_sample_suite(folder + "/suite", {0});
    for (const std::string file : {"suite.json", "summary.json", "cells/fp8-seed0.json", "runs/gnmr-seed0/run.json",
                                   "runs/gnmr-seed0/journal.jsonl"}) {
      add(folder, "suite/" + file, {"report", "-q", "suite"});
    }
    make_fault_suite();
  }

  void make_fault_suite() {
    const std::string folder = made("fault-suite");
    const lab::Suite suite = lab::Suite::open({.folder = folder + "/faults/overflow",
                                               .title = "t",
                                               .seeds = {4},
                                               .arms = lab::choose_fault_arms(Words{"none", "trial"}),
                                               .texts = {"steps=40", "faults=overflow"},
                                               .fault = "overflow"});
    for (const lab::PlannedCell& planned : suite.cells()) {
      std::string note;
      test::FakeRun run{.settings = suite.settings_of(planned, nullptr, note), .steps_done = 40};
      test::write_fake_run(run);
      if (!suite.measure(planned, "")) throw Error(planned.name + ": the sample run has no result");
    }
    put_file(folder + "/cells.jsonl", lab::cell_lines(lab::cells_in_folder(folder + "/faults")));
    add(folder, "cells.jsonl", {"lab", "faults", "--from", "cells.jsonl"});
    for (const std::string file : {"suite.json", "cells/none-seed4.json", "cells/trial-seed4.json"}) {
      add(folder, "faults/overflow/" + file, {"lab", "faults", "--from", "faults"});
    }
    for (Sample& sample : quick) {
      if (sample.folder == folder) sample.conflict = "were trained under different conditions";
    }
    for (const std::string file : {"suite.json", "runs/trial-seed4/run.json", "runs/trial-seed4/metrics.jsonl"}) {
      add(folder, "faults/overflow/" + file, {"report", "-q", "faults/overflow"});
    }
  }

  void make_traces() {
    const std::string folder = made("traces");
    const std::string example = GNMR_EXAMPLES_DIR "/fault_run/";
    put_file(folder + "/norms.csv", head_of(content_of(example + "norms.csv"), 120));
    put_file(folder + "/truth.csv", head_of(content_of(example + "truth.csv"), 120));
    put_file(folder + "/mixed.csv", content_of(GNMR_GOLDEN_DIR "/mixed_01.csv"));
    put_file(folder + "/options.json", content_of(GNMR_GOLDEN_DIR "/mixed_01.options.json"));
    put_file(folder + "/units.json", content_of(GNMR_GOLDEN_DIR "/mixed_01.units.json"));
    const Words mixed{"replay", "mixed.csv", "--units", "units.json", "--config", "options.json"};
    Words saving = mixed;
    saving.insert(saving.end(), {"--save-state", "state.gnmr"});
    must_run(folder, saving);
    add(folder, "norms.csv", {"replay", "norms.csv", "--decisions", "-"});
    add(folder, "norms.csv", {"tune", "norms.csv"});
    add(folder, "truth.csv", {"replay", "norms.csv", "--truth", "truth.csv"});
    add(folder, "truth.csv", {"tune", "norms.csv", "--truth", "truth.csv"});
    for (const char* const file : {"mixed.csv", "units.json", "options.json"}) add(folder, file, mixed);
    // The units of the state go with a later part of the same trace.
    add(folder, "state.gnmr", {"replay", "mixed.csv", "--units", "units.json", "--load-state", "state.gnmr"});
  }

  /// Logs of others: the seeds of the fuzzers, one folder per format. Some seeds are refused as they are.
  void make_logs() {
    const std::string folder = made("logs");
    for (const fs::directory_entry& format : fs::directory_iterator(GNMR_FUZZ_CORPUS_DIR)) {
      const std::string name = format.path().filename().string();
      if (!name.starts_with("log_") && name != "trace_csv") continue;
      if (name == "log_tensorboard_event") continue;  // the inside of a record, no file
      for (const fs::directory_entry& entry : fs::directory_iterator(format.path())) {
        const std::string file = name + "-" + entry.path().filename().string();
        put_file(folder + "/" + file, content_of(entry.path().string()));
        const Words command{"replay", "--allow-restart", file};
        if (!refusal_of(folder, command).empty()) continue;
        add(folder, file, command);
        quick.back().name = "replay of " + name;
      }
    }
    copy_tree(GNMR_TEST_ASSETS_DIR "/tensorboard/run", folder + "/events");
    add(folder, "events/events.out.tfevents.0000000002.host", {"replay", "--allow-restart", "events"});
  }

  void make_settings_files() {
    const std::string folder = made("settings");
    for (const char* const recipe : {"fp8-delayed", "nvfp4-hadamard"}) {
      put_file(folder + "/" + recipe + ".json", content_of(std::string(GNMR_RECIPES_DIR "/") + recipe + ".json"));
      add(folder, std::string(recipe) + ".json", {"recipes", std::string(recipe) + ".json"});
      quick.back().name = "recipes";
    }
    put_file(folder + "/options.json", content_of(GNMR_GOLDEN_DIR "/mixed_01.options.json"));
    add(folder, "options.json", {"options", "--config", "options.json"});
  }

  const Settings& settings_;
  std::string folder_;
};

/// A run with two checkpoints whose last steps are still to be done.
void SampleMaker::make_trained() {
  const testing::TrainFolder source;
  const std::string folder = made("trained");
  put_file(folder + "/config.json", content_of(source.file("config.json")));
  put_file(folder + "/text.txt", content_of(source.file("text.txt")));
  put_file(folder + "/recipe.json", content_of(GNMR_RECIPES_DIR "/fp8-delayed.json"));
  put_file(folder + "/options.json", R"({"warmup_samples": 2, "lock_steps": 3, "max_o": 3, "common_share": 1})");
  // 16-bit tokens of a vocabulary of 256.
  std::string tokens;
  for (const char byte : content_of(source.file("text.txt"))) tokens += {byte, '\0'};
  put_file(folder + "/tokens.bin", tokens);
  const Words plain{"--steps",        std::to_string(kTrainedSteps),
                    "--batch",        "2",
                    "--sequence",     "16",
                    "--threads",      "1",
                    "--eval-batches", "1",
                    "--eval-every",   "0"};
  Words resume{"train",
               "--model",
               "config.json",
               "--data",
               "text.txt",
               "--recipe",
               "recipe.json",
               "--config",
               "options.json",
               "--faults",
               "saturate",
               "--fault-from",
               "2",
               "--fault-every",
               "2",
               "--evidence",
               "--norms",
               "--errors",
               "--harm",
               "--checkpoint-every",
               "3",
               "--keep-checkpoints",
               "0",
               "--out",
               kTrainedRun,
               "--resume"};
  resume.insert(resume.end(), plain.begin(), plain.end());
  must_run(folder, resume);
  const std::string run = folder + "/" + kTrainedRun;
  test::remove_tree(checkpoint_folder(run, kTrainedSteps));
  put_file(run + "/control", "armed\n");

  const auto add_trained = [&](const std::string& file, const Words& command, const std::string& name,
                               Promise promise) {
    trained.push_back(
        {.name = name, .folder = folder, .file = file, .command = command, .trains = true, .promise = promise});
  };
  for (const std::string& file : files_under(run)) {
    if (file == ".lock") continue;
    const bool of_checkpoint = file.starts_with("checkpoints/");
    const bool newest = file.find(fmt::format("step-{:08}", kNewestStep)) != std::string::npos;
    const std::string base = fs::path(file).filename().string();
    const std::string name = !of_checkpoint ? "resume, " + base
                             : newest       ? "resume, checkpoint " + base
                                            : "resume, earlier checkpoint";
    const Sample sample{name,   folder, std::string(kTrainedRun) + "/" + file,
                        resume, true,   Promise::noticed_or_harmless};
    // What a run goes on from matters most.
    for (int times = 0; times < (newest ? 3 : 1); ++times) trained.push_back(sample);
  }
  for (const char* const file : kReportedFiles) {
    add(folder, std::string("run/") + file, {"report", "run"});
  }
  add(folder, "run/journal.jsonl", {"explain", "run"});
  add(folder, "run/faults.csv", {"replay", "run/norms.csv", "--truth", "run/faults.csv"});
  add(folder, "run/norms.csv", {"tune", "run/norms.csv", "--evidence", "run/errors.csv"});
  add(folder, "run/errors.csv", {"tune", "run/norms.csv", "--evidence", "run/errors.csv"});
  for (const char* const file : {"config.json", "recipe.json", "options.json"}) {
    Words fresh = resume;
    *std::find(fresh.begin(), fresh.end(), kTrainedRun) = "other";
    add_trained(file, fresh, fmt::format("train, {}", file), Promise::refused_or_read);
  }
  const std::string weights = fmt::format("run/checkpoints/step-{:08}", kNewestStep);
  for (const char* const file : {"/model.safetensors", "/config.json"}) {
    Words init{"train", "--model", weights + "/config.json", "--init", weights, "--data", "text.txt", "--out", "other"};
    init.insert(init.end(), plain.begin(), plain.end());
    add_trained(weights + file, init, fmt::format("train --init, {}", file + 1), Promise::refused_or_read);
  }
  Words binary{"train", "--model", "config.json", "--data", "tokens.bin", "--out", "other"};
  binary.insert(binary.end(), plain.begin(), plain.end());
  add_trained("tokens.bin", binary, "train, tokens.bin", Promise::refused_or_read);
}

}  // namespace

void make_samples(const Settings& settings, const std::string& folder, std::vector<Sample>& quick,
                  std::vector<Sample>& trained) {
  SampleMaker maker(settings, folder);
  maker.make_quick();
  if (settings.with_engine) maker.make_trained();
  quick = std::move(maker.quick);
  trained = std::move(maker.trained);
}

}  // namespace gnmr::abuse
