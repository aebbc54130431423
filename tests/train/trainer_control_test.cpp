// SPDX-License-Identifier: Apache-2.0
// The switchboard, the kill switch and going on: what steers a run from outside.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "gnmr/core/error.h"
#include "train/small_run.h"

namespace gnmr::train {
namespace {

using testing::decisions_of;
using testing::finish;
using testing::FinishedRun;
using testing::Recorder;
using testing::same_weights;
using testing::SmallRuns;

std::vector<std::int64_t> high_counts(const FinishedRun& done) {
  std::vector<std::int64_t> counts;
  for (const run::TrainLine& line : done.recorder.lines) counts.push_back(line.high);
  return counts;
}

TEST(TrainerControl, TheSwitchboardForcesUnits) {
  const SmallRuns runs;
  run::TrainSettings settings = runs.settings("set");
  settings.steps = 12;
  settings.options.selector = Selector::norms;
  settings.always_high = {"layers.0.q"};
  settings.set = {"*.down=high@3:5", "layers.1.down=low@5:", "*.o=high@11:"};
  const FinishedRun done = finish(settings);
  EXPECT_EQ(high_counts(done), (std::vector<std::int64_t>{1, 1, 3, 3, 2, 1, 1, 1, 1, 1, 3, 3}));
  for (const run::TrainLine& line : done.recorder.lines) EXPECT_EQ(line.recovered, 0);
  const io::Journal journal = io::read_journal(settings.out + "/journal.jsonl");
  const auto forced = [&](const std::string& name) {
    return std::find_if(journal.header->units.begin(), journal.header->units.end(),
                        [&](const Unit& unit) { return unit.name == name; });
  };
  ASSERT_NE(forced("layers.0.q"), journal.header->units.end());
  EXPECT_NE(forced("layers.0.up"), journal.header->units.end());
  settings.out = runs.file("low");
  settings.always_high = {};
  settings.set = {};
  EXPECT_FALSE(same_weights(finish(settings).weights, done.weights));
}

TEST(TrainerControl, WatchStepsOnlyWatch) {
  const SmallRuns runs;
  run::TrainSettings settings = runs.settings("watched");
  SmallRuns::add_faults(settings);
  settings.experiment.fault_every = 2;
  const FinishedRun armed = finish(settings);
  settings.out = runs.file("later");
  settings.watch_steps = 20;
  const FinishedRun later = finish(settings);
  const auto first_high = [](const FinishedRun& done) {
    const auto counts = high_counts(done);
    return std::find_if(counts.begin(), counts.end(), [](std::int64_t n) { return n > 0; }) - counts.begin();
  };
  EXPECT_LT(first_high(armed), 19);
  EXPECT_GE(first_high(later), 20);
  EXPECT_LT(first_high(later), 30);
}

TEST(TrainerControl, TheKillSwitchIsFollowedAndWrittenDown) {
  const SmallRuns runs;
  run::TrainSettings settings = runs.settings("run");
  settings.steps = 16;
  SmallRuns::add_faults(settings);
  Recorder recorder;
  recorder.wanted_mode = [](std::int64_t step) -> std::optional<Mode> {
    if (step == 3) return Mode::high;
    if (step == 5) return Mode::watch;
    return std::nullopt;
  };
  recorder.after_step = [&](const run::TrainLine& line) {
    if (line.step == 8) test::put_file(settings.out + "/control", "high\n");
    if (line.step == 10) test::put_file(settings.out + "/control", "armed for good\n");
    if (line.step == 12) test::put_file(settings.out + "/control", "hihg\n");
  };
  const FinishedRun done = finish(settings, recorder);
  const std::vector<std::int64_t> high = high_counts(done);
  for (std::size_t step = 1; step <= high.size(); ++step) {
    const bool all = step == 3 || step == 4 || step == 9 || step == 10;
    if (all) {
      EXPECT_EQ(high[step - 1], 14) << step;
    } else if (step < 10) {
      EXPECT_EQ(high[step - 1], 0) << step;
    } else {
      EXPECT_LE(high[step - 1], 3) << step;
    }
  }
  std::vector<Mode> modes;
  for (const io::JournalMode& mode : io::read_journal(settings.out + "/journal.jsonl").modes) {
    modes.push_back(mode.mode);
    EXPECT_FALSE(mode.why.empty());
  }
  EXPECT_EQ(modes, (std::vector<Mode>{Mode::high, Mode::watch, Mode::high, Mode::armed}));
  ASSERT_EQ(done.recorder.notes.size(), 5u);
  EXPECT_NE(done.recorder.notes.back().find("hihg"), std::string::npos) << done.recorder.notes.back();
}

TEST(TrainerControl, AStoppedRunGoesOnBitForBit) {
  const SmallRuns runs;
  for (const char* const recipe : {"fp8-delayed", "nvfp4-hadamard"}) {
    for (const int lag : {0, 1}) {
      const std::string name = recipe + std::to_string(lag);
      run::TrainSettings settings = runs.settings("whole" + name);
      settings.recipe = recipe;
      settings.eval_every = 6;
      settings.evidence = true;
      SmallRuns::add_faults(settings);
      settings.options.lag = lag;
      const FinishedRun whole = finish(settings);
      EXPECT_GT(whole.outcome.control.admissions, 0u);
      settings.out = runs.file("parts" + name);
      FinishedRun last;
      const std::int64_t end = whole.outcome.last_step;  // later with lag 1: held batches come again
      for (const std::int64_t stop : {std::int64_t{5}, std::int64_t{13}, std::int64_t{14}, std::int64_t{21}, end}) {
        Recorder recorder;
        recorder.stop_after = stop;
        last = finish(settings, recorder);
        EXPECT_EQ(last.outcome.last_step, stop);
        EXPECT_EQ(last.outcome.finished, stop == end);
        settings.resume = true;
      }
      settings.resume = false;
      EXPECT_TRUE(same_weights(last.weights, whole.weights)) << name;
      const std::string a = runs.file("whole" + name);
      const std::string b = runs.file("parts" + name);
      EXPECT_EQ(decisions_of(a + "/journal.jsonl"), decisions_of(b + "/journal.jsonl"));
      const run::Metrics expected = run::read_metrics(a + "/metrics.jsonl");
      run::Metrics found = run::read_metrics(b + "/metrics.jsonl");
      ASSERT_EQ(found.train.size(), expected.train.size());
      for (std::size_t step = 0; step < found.train.size(); ++step) {
        found.train[step].seconds = expected.train[step].seconds;
        EXPECT_EQ(found.train[step], expected.train[step]) << step + 1;
      }
      EXPECT_EQ(found.evals, expected.evals);
      EXPECT_EQ(run::read_evidence(a + "/evidence.jsonl"), run::read_evidence(b + "/evidence.jsonl"));
    }
  }
}

TEST(TrainerControl, WhatMayNotChangeOnResumeIsNamed) {
  const SmallRuns runs;
  run::TrainSettings settings = runs.settings("run");
  settings.steps = 6;
  settings.checkpoint_every = 2;
  Recorder recorder;
  recorder.stop_after = 4;
  finish(settings, recorder);
  const auto refused = [&](auto change) {
    run::TrainSettings other = settings;
    other.resume = true;
    change(other);
    return test::error_of<Error>([&] { finish(other); });
  };
  const std::string message = refused([](auto& s) {
    s.lr = 0.5;
    s.batch = 2;
  });
  EXPECT_NE(message.find("batch, lr"), std::string::npos) << message;
  EXPECT_NE(refused([](auto& s) { s.recipe = "mxfp8"; }).find("recipe"), std::string::npos);
  EXPECT_NE(refused([](auto& s) { s.resume = false; }).find("--resume"), std::string::npos);
  test::put_file(runs.file("text.txt"), testing::sample_text(5000));
  EXPECT_NE(refused([](auto&) {}).find("--data"), std::string::npos);
  test::put_file(runs.file("text.txt"), testing::sample_text(6000));
  // A newest checkpoint that is damaged is named, with the one to use instead.
  const std::string newest = settings.out + "/checkpoints/step-00000004";
  std::filesystem::resize_file(newest + "/model.safetensors", 1000);
  const std::string damaged = refused([](auto&) {});
  EXPECT_NE(damaged.find("step-00000004"), std::string::npos) << damaged;
  EXPECT_NE(damaged.find("step-00000002"), std::string::npos) << damaged;
  test::remove_tree(newest);
  settings.resume = true;
  EXPECT_TRUE(finish(settings).outcome.finished);
}

TEST(TrainerControl, AResumedRunMayHaveAnotherController) {
  const SmallRuns runs;
  run::TrainSettings settings = runs.settings("whole");
  SmallRuns::add_faults(settings);
  settings.experiment.fault_every = 2;
  // It is stopped where an armed run would have units in recovery in the next step too.
  const std::vector<std::int64_t> armed = high_counts(finish(settings));
  std::int64_t stop = 10;
  while (stop < 20 && armed[static_cast<std::size_t>(stop)] == 0) ++stop;
  ASSERT_LT(stop, 20);
  settings.out = runs.file("run");
  Recorder recorder;
  recorder.stop_after = stop;
  finish(settings, recorder);
  settings.resume = true;
  settings.controller = "watch";
  recorder.stop_after = 23;
  const FinishedRun watched = finish(settings, recorder);
  EXPECT_EQ(watched.recorder.lines.front().step, stop + 1);
  for (const std::int64_t count : high_counts(watched)) EXPECT_EQ(count, 0) << "it was asked to watch";
  settings.controller = "gnmr";
  recorder.stop_after = 25;
  recorder.wanted_mode = [](std::int64_t) { return Mode::high; };
  finish(settings, recorder);
  // What the kill switch asked for goes on until it is taken back.
  const FinishedRun last = finish(settings);
  for (const std::int64_t count : high_counts(last)) EXPECT_EQ(count, 14);
}

TEST(TrainerControl, ARunThatWasKilledBeforeItsFirstCheckpointBeginsAgain) {
  const SmallRuns runs;
  run::TrainSettings settings = runs.settings("run");
  settings.steps = 5;
  const FinishedRun whole = finish(settings);
  test::remove_tree(settings.out + "/checkpoints");
  settings.resume = true;
  const FinishedRun again = finish(settings);
  EXPECT_TRUE(same_weights(whole.weights, again.weights));
  ASSERT_EQ(again.recorder.notes.size(), 1u);
  EXPECT_NE(again.recorder.notes[0].find("begins again"), std::string::npos);
}

}  // namespace
}  // namespace gnmr::train
