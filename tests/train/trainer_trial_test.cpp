// SPDX-License-Identifier: Apache-2.0
// Alarms, trials, verdicts and guards in real steps.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "gnmr/core/error.h"
#include "gnmr/io/signals_file.h"
#include "train/small_run.h"
#include "train/trouble.h"

namespace gnmr::train {
namespace {

using nn::testing::Site;
using testing::finish;
using testing::FinishedRun;
using testing::Recorder;
using testing::same_weights;
using testing::SmallRuns;
using testing::trial_settings;
using testing::trials_of;
using testing::Trouble;
using testing::with;

/// The weights after a step.
std::vector<at::Tensor> weights_after(const run::TrainSettings& settings, std::int64_t step, const Trouble& trouble) {
  run::TrainSettings shorter = settings;
  shorter.out += "-until-" + std::to_string(step);
  Recorder recorder;
  recorder.stop_after = step;
  return finish(shorter, std::move(recorder), with(trouble)).weights;
}

TEST(TrainerTrial, FindsTheUnitAndUpdatesWithTheGradientOfHighPrecision) {
  const SmallRuns runs;
  for (const Site site : {Site::before_cast, Site::in_cast, Site::after_cast, Site::after_product}) {
    const std::string name = "run" + std::to_string(static_cast<int>(site));
    const run::TrainSettings settings = trial_settings(runs, name);
    const Trouble trouble{.steps = {12, 13}, .site = site};
    const FinishedRun done = finish(settings, {}, with(trouble));
    const std::vector<io::JournalTrial> trials = trials_of(settings);
    ASSERT_EQ(trials.size(), 1u) << name;
    EXPECT_EQ(trials[0].step, 12);
    EXPECT_EQ(trials[0].verdict, "numeric");
    EXPECT_EQ(trials[0].units, std::vector<std::string>{"layers.0.gate"});
    EXPECT_GT(trials[0].errors.at(0), 0.2);
    EXPECT_GT(trials[0].excesses.at(0), 1);
    EXPECT_EQ(trials[0].why.rfind("patrol: layers.0.gate", 0), 0u) << trials[0].why;
    EXPECT_EQ(done.outcome.control.trials, 1u);
    // Fourteen units in 30 steps: one in recovery in three of them, all in the trial.
    const std::size_t units = static_cast<std::size_t>(done.recorder.start.info.units);
    const run::HighCounts& high = done.outcome.control.high;
    EXPECT_EQ(high.unit_steps, 30 * units);
    EXPECT_EQ(high.recovered, 3u);
    EXPECT_EQ(high.standing, 0u);
    EXPECT_EQ(high.rerun_high, units);
    EXPECT_EQ(run::high_shares(done.recorder.lines, done.recorder.start.info.units), high.shares());
    for (const run::TrainLine& line : done.recorder.lines) {
      EXPECT_EQ(line.rerun_high, line.step == 12 ? static_cast<std::int64_t>(units) : 0) << name << line.step;
    }
    for (const run::TrainLine& line : done.recorder.lines) {
      EXPECT_EQ(line.recovered, line.step >= 13 && line.step <= 15 ? 1 : 0) << name << line.step;
    }
    // The held step is as if all units had been high in it: weights, moments and what comes of them.
    run::TrainSettings forced = trial_settings(runs, name + "-high");
    forced.set = {"*=high@12:12"};
    EXPECT_TRUE(same_weights(weights_after(settings, 12, trouble), weights_after(forced, 12, {}))) << name;
  }
}

TEST(TrainerTrial, TheLowPathRemembersTheStepOnce) {
  const SmallRuns runs;
  run::TrainSettings settings = trial_settings(runs, "delayed");
  settings.recipe = "fp8-delayed";
  settings.steps = 14;
  const Trouble trouble{.steps = {12}, .site = Site::after_product};
  Recorder recorder;
  nn::Collective alone;
  Trainer trainer(settings, recorder, alone, {.plan_model = plan_llama, .make_experiment = with(trouble)});
  trainer.run();
  EXPECT_GE(trials_of(settings).size(), 1u);
  run::TrainSettings healthy = trial_settings(runs, "healthy");
  healthy.recipe = "fp8-delayed";
  healthy.steps = 14;
  healthy.set = {"*=high@12:12"};
  nn::Collective also_alone;
  Recorder other;
  Trainer plain(healthy, other, also_alone, {.plan_model = plan_llama, .make_experiment = with({})});
  plain.run();
  for (const auto& entry : trainer.model().named_modules()) {
    const auto linear = std::dynamic_pointer_cast<nn::SwitchableLinearImpl>(entry.value());
    if (linear == nullptr || linear->paths().recipe == nullptr) continue;
    const auto twin = std::dynamic_pointer_cast<nn::SwitchableLinearImpl>(plain.model().named_modules()[entry.key()]);
    // The last two steps differ by the recovery; those before are the same ones, one entry a step.
    std::vector<float> seen = linear->paths().amax.delayed[0][0].amax_history;
    std::vector<float> expected = twin->paths().amax.delayed[0][0].amax_history;
    ASSERT_EQ(seen.size(), expected.size()) << entry.key();
    ASSERT_EQ(seen.size(), 14u);
  }
}

TEST(TrainerTrial, ABadBatchIsCommonAndNobodysFault) {
  const SmallRuns runs;
  run::TrainSettings settings = trial_settings(runs, "common");
  settings.patrol = 0;  // the norms alone raise the alarm
  settings.options.max_trials = 100;
  const FinishedRun done = finish(settings, {}, with({.bad_batches = {20}}));
  const std::vector<io::JournalTrial> trials = trials_of(settings);
  const auto found = std::find_if(trials.begin(), trials.end(), [](const auto& trial) { return trial.step == 20; });
  ASSERT_NE(found, trials.end());
  EXPECT_EQ(found->verdict, "common");
  EXPECT_TRUE(found->units.empty());
  EXPECT_EQ(done.outcome.control.admissions, 0u);
  // With a patrol of all units nothing needs to be run again.
  settings.out = runs.file("patrolled");
  settings.patrol = 1;
  const FinishedRun patrolled = finish(settings, {}, with({.bad_batches = {20}}));
  EXPECT_EQ(patrolled.outcome.control.trials, 0u);
  EXPECT_GE(patrolled.outcome.control.dismissed, 1u);
}

TEST(TrainerTrial, WhatIsGoneInTheRerunIsNotNumeric) {
  const SmallRuns runs;
  const run::TrainSettings settings = trial_settings(runs, "unlocated");
  const Trouble trouble{.steps = {15}, .site = Site::after_product, .transient = true};
  const FinishedRun done = finish(settings, {}, with(trouble));
  const std::vector<io::JournalTrial> trials = trials_of(settings);
  ASSERT_EQ(trials.size(), 1u);
  EXPECT_EQ(trials[0].verdict, "unlocated");
  EXPECT_EQ(trials[0].step, 15);
  EXPECT_GT(trials[0].distance.value_or(0), 0);
  EXPECT_EQ(done.outcome.control.admissions, 0u);
}

/// The largest error in one step, in errors.bin.
float largest_error(const run::TrainSettings& settings, std::int64_t step) {
  io::SignalsReader reader(settings.out + "/errors.bin");
  float largest = 0;
  for (io::SignalsRow row; reader.next(row);) {
    if (row.step != step) continue;
    for (const float error : row.values) largest = std::fmax(largest, error);
  }
  return largest;
}

TEST(TrainerTrial, AnErrorThatANewScaleAnswersIsNobodysFault) {
  const SmallRuns runs;
  for (const double refresh : {4.0, 0.0}) {
    run::TrainSettings settings = trial_settings(runs, refresh > 0 ? "renewed" : "stale");
    settings.recipe = (std::filesystem::path(settings.model).parent_path() / "stale.json").string();
    test::put_file(settings.recipe, R"({"name": "stale", "output_gradient":
      {"format": "e4m3", "scaling": "delayed", "interval": 100, "history": 1}})");
    settings.refresh = refresh;
    settings.lr = 1e-4;  // no scale goes stale by itself
    const FinishedRun done = finish(settings, {}, with({.bad_batches = {20}}));
    EXPECT_GT(largest_error(settings, 20), 0.3F) << "small gradients do not fit the scale";
    const std::vector<io::JournalTrial> trials = trials_of(settings);
    EXPECT_EQ(std::count_if(trials.begin(), trials.end(), [](const auto& trial) { return trial.step == 20; }),
              refresh > 0 ? 0 : 1);
    EXPECT_EQ(done.recorder.lines.at(20).recovered > 0, refresh == 0) << "in step 21";
  }
}

TEST(TrainerTrial, FindsTheUnitThatMakesEverythingNonFinite) {
  const SmallRuns runs;
  for (const double patrol : {0.0, 1.0}) {
    run::TrainSettings settings = trial_settings(runs, "nan" + std::to_string(patrol));
    settings.patrol = patrol;
    const Trouble trouble{.steps = {12, 13, 14}, .site = Site::after_product, .makes_nan = true};
    const FinishedRun done = finish(settings, {}, with(trouble));
    const std::vector<io::JournalTrial> trials = trials_of(settings);
    const auto found = std::find_if(trials.begin(), trials.end(), [](const auto& trial) { return trial.step == 12; });
    ASSERT_NE(found, trials.end());
    EXPECT_EQ(found->verdict, "numeric");
    EXPECT_EQ(found->units, std::vector<std::string>{"layers.0.gate"});
    EXPECT_EQ(done.outcome.skipped_updates, 0);
    for (const run::TrainLine& line : done.recorder.lines) EXPECT_TRUE(std::isfinite(line.loss)) << line.step;
  }
}

TEST(TrainerTrial, ReadsTheSameAfterAResume) {
  const SmallRuns runs;
  const Trouble trouble{.steps = {8, 9, 14, 22, 23}, .site = Site::in_cast};
  run::TrainSettings settings = trial_settings(runs, "whole");
  settings.checkpoint_every = 10;
  const FinishedRun whole = finish(settings, {}, with(trouble));
  const std::string journal = testing::decisions_of(settings.out + "/journal.jsonl");
  for (const std::int64_t stop : {8, 12, 22}) {
    run::TrainSettings parts = settings;
    parts.out = runs.file("stopped" + std::to_string(stop));
    Recorder recorder;
    recorder.stop_after = stop;
    finish(parts, std::move(recorder), with(trouble));
    parts.resume = true;
    EXPECT_TRUE(same_weights(finish(parts, {}, with(trouble)).weights, whole.weights)) << stop;
    EXPECT_EQ(testing::decisions_of(parts.out + "/journal.jsonl"), journal) << stop;
    EXPECT_EQ(trials_of(parts).size(), trials_of(settings).size());
  }
}

TEST(TrainerTrial, TheCapIsHard) {
  const SmallRuns runs;
  run::TrainSettings settings = trial_settings(runs, "cap");
  settings.options.max_trials = 2;
  settings.options.max_o = 0;  // nobody can be helped: every step is alarmed
  const Trouble trouble{.steps = {10, 11, 12, 13, 14, 15, 16, 17}};
  EXPECT_EQ(finish(settings, {}, with(trouble)).outcome.control.trials, 2u);
}

TEST(TrainerTrial, WithoutMemoryForItThePatrolDecides) {
  const SmallRuns runs;
  run::TrainSettings settings = trial_settings(runs, "memory");
  const FinishedRun done =
      finish(settings, {}, with({.steps = {12, 13}, .site = Site::after_product, .fails_again = true}));
  EXPECT_EQ(done.outcome.control.trials, 0u);
  EXPECT_EQ(done.outcome.control.admissions, 1u);
  EXPECT_EQ(done.recorder.lines[12].recovered, 1) << "from the step after it";
  ASSERT_EQ(done.recorder.notes.size(), 1u);
  EXPECT_NE(done.recorder.notes[0].find("a trial failed"), std::string::npos);
  EXPECT_TRUE(done.outcome.finished);
}

TEST(TrainerTrial, WatchingRunsNothingAgain) {
  const SmallRuns runs;
  run::TrainSettings settings = trial_settings(runs, "watch");
  settings.controller = "watch";
  const Trouble trouble{.steps = {12, 13}};
  const FinishedRun watched = finish(settings, {}, with(trouble));
  EXPECT_EQ(watched.outcome.control.trials, 0u);
  settings.out = runs.file("none");
  settings.controller = "none";
  EXPECT_TRUE(same_weights(finish(settings, {}, with(trouble)).weights, watched.weights));
}

TEST(TrainerGuards, SkipClipAndReplay) {
  const SmallRuns runs;
  const Trouble trouble{.steps = {12, 13}};
  run::TrainSettings settings = trial_settings(runs, "skip");
  settings.options.selector = Selector::evidence;
  settings.options.guard = Guard::skip;
  const FinishedRun skipped = finish(settings, {}, with(trouble));
  EXPECT_EQ(skipped.outcome.skipped_updates, 1);
  EXPECT_FALSE(skipped.recorder.lines[11].applied);
  settings.out = runs.file("replay");
  settings.options.guard = Guard::replay;
  const FinishedRun replayed = finish(settings, {}, with(trouble));
  EXPECT_EQ(replayed.outcome.control.replays, 1u);
  const std::vector<io::JournalTrial> lines = trials_of(settings);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].rerun, "replay");
  // A replay is the step with the faulty unit high.
  run::TrainSettings forced = trial_settings(runs, "forced");
  forced.options.selector = Selector::evidence;
  forced.set = {"layers.0.gate=high@12:12"};
  EXPECT_TRUE(same_weights(weights_after(settings, 12, trouble), weights_after(forced, 12, {})));
  settings.out = runs.file("clip");
  settings.options.guard = Guard::clip;
  settings.options.selector = Selector::norms;
  const FinishedRun clipped = finish(settings, {}, with(trouble));
  settings.out = runs.file("plain");
  settings.options.guard = Guard::none;
  const FinishedRun plain = finish(settings, {}, with(trouble));
  EXPECT_EQ(clipped.outcome.skipped_updates, 0);
  EXPECT_GT(plain.outcome.control.admissions, 0u);
  EXPECT_FALSE(same_weights(clipped.weights, plain.weights));
}

TEST(TrainerControl, TheOracleHasTheFaultyUnitHighFromTheFirstStep) {
  const SmallRuns runs;
  run::TrainSettings settings = trial_settings(runs, "oracle");
  settings.experiment.oracle = true;
  const FinishedRun done = finish(settings, {}, with({.steps = {12, 13}}));
  EXPECT_EQ(done.outcome.control.trials, 0u);
  for (const run::TrainLine& line : done.recorder.lines) {
    EXPECT_EQ(line.recovered, line.step == 12 || line.step == 13 ? 1 : 0);
  }
}

TEST(TrainerControl, ItDisarmsWhereNothingHelps) {
  const SmallRuns runs;
  run::TrainSettings settings = trial_settings(runs, "disarm");
  settings.steps = 40;
  settings.patrol = 0;
  settings.options.noise_factor = 2;
  settings.options.max_trials = 100;
  settings.disarm_after = 12;
  std::set<std::int64_t> bad;
  for (std::int64_t step = 16; step <= 40; step += 3) bad.insert(step);
  finish(settings, {}, with({.bad_batches = bad}));
  const io::Journal journal = io::read_journal(settings.out + "/journal.jsonl");
  ASSERT_FALSE(journal.modes.empty());
  EXPECT_EQ(journal.modes.back().mode, Mode::watch);
  EXPECT_NE(journal.modes.back().why.find("helped"), std::string::npos);
}

TEST(TrainerHarm, IsTheDistanceFromTheCleanGradientAndLeavesNoTrace) {
  const SmallRuns runs;
  run::TrainSettings settings = trial_settings(runs, "harm");
  settings.controller = "watch";
  settings.experiment.harm = true;
  const Trouble trouble{.steps = {12, 13}};
  const FinishedRun measured = finish(settings, {}, with(trouble));
  const std::vector<run::HarmLine> harm = run::read_harm(settings.out + "/harm.jsonl");
  ASSERT_EQ(harm.size(), 2u);
  EXPECT_EQ(harm[0].step, 12);
  EXPECT_EQ(harm[0].layer, "layers.0.gate");
  EXPECT_GT(harm[0].distance, 0.05);
  settings.out = runs.file("plain");
  settings.experiment.harm = false;
  EXPECT_TRUE(same_weights(finish(settings, {}, with(trouble)).weights, measured.weights));
}

}  // namespace
}  // namespace gnmr::train
