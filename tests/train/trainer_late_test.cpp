// SPDX-License-Identifier: Apache-2.0
// Steps with a gate (lag 1) in real runs: what is held, what comes again, going on from any step.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "gnmr/core/error.h"
#include "gnmr/run/run_batches.h"
#include "io/temporary_folder.h"
#include "train/small_run.h"
#include "train/trouble.h"

namespace gnmr::train {
namespace {

using testing::finish;
using testing::FinishedRun;
using testing::late_settings;
using testing::nan_in;
using testing::Recorder;
using testing::same_weights;
using testing::SmallRuns;
using testing::trials_of;
using testing::Trouble;
using testing::with;

/// What the journal says of a step's alarm.
std::string alarm_of(const run::TrainSettings& settings, std::int64_t step) {
  for (const io::JournalStepEntry& entry : io::read_journal(settings.out + "/journal.jsonl").steps) {
    if (entry.number == step && entry.step) return entry.step->alarm;
  }
  return "no such step";
}

TEST(TrainerLate, AHeldBatchComesAgainAndItsUnitGoesToRecovery) {
  const SmallRuns runs;
  const run::TrainSettings settings = late_settings(runs, "held");
  const FinishedRun done = finish(settings, {}, with(nan_in({12})));
  const std::vector<run::TrainLine>& lines = done.recorder.lines;
  ASSERT_EQ(lines.size(), 31u) << "a held batch costs time, not an update";
  for (std::size_t index = 0; index < lines.size(); ++index) {
    EXPECT_EQ(lines[index].step, static_cast<std::int64_t>(index) + 1);
  }
  EXPECT_FALSE(lines[11].applied);
  EXPECT_EQ(alarm_of(settings, 12), "held");
  const std::vector<io::JournalTrial> trials = trials_of(settings);
  const auto found = std::find_if(trials.begin(), trials.end(), [](const auto& trial) { return trial.step == 14; });
  ASSERT_NE(found, trials.end());
  EXPECT_EQ(found->verdict, "numeric");
  EXPECT_EQ(found->units, std::vector<std::string>{"layers.0.gate"});
  EXPECT_EQ(found->losses.size(), 2u) << "that of the held run, too";
  EXPECT_EQ(found->why.rfind("step 12, norms: ", 0), 0u) << found->why;
  EXPECT_TRUE(lines[13].applied);
  EXPECT_EQ(lines[11].batch, std::nullopt);
  EXPECT_EQ(lines[13].batch, 12);
  EXPECT_EQ(lines[14].batch, 14);
  EXPECT_EQ(lines[14].recovered, 0);
  EXPECT_EQ(lines[15].recovered, 1) << "the decision of 14 holds in 16";
  // A trial is a step here: what it runs high besides the units in recovery is the rerun's.
  std::uint64_t rerun_high = 0;
  for (const run::TrainLine& line : lines) {
    const bool is_trial =
        std::any_of(trials.begin(), trials.end(), [&](const auto& one) { return one.step == line.step; });
    EXPECT_EQ(*line.rerun_high + (is_trial ? *line.recovered : 0), is_trial ? done.recorder.start.info.units : 0)
        << line.step;
    rerun_high += static_cast<std::uint64_t>(*line.rerun_high);
  }
  EXPECT_EQ(done.outcome.control.high.rerun_high, rerun_high);
  EXPECT_EQ(done.outcome.skipped_updates, 0);
  EXPECT_GE(done.outcome.control.held, 1u);
  EXPECT_EQ(done.outcome.control.held, done.outcome.control.trials) << "without a patrol nothing else calls one";
  for (const run::TrainLine& line : lines) EXPECT_TRUE(line.step == 12 || std::isfinite(line.loss)) << line.step;
}

/// Skips the update of one step.
class SkipOneStep : public GradientRule {
 public:
  explicit SkipOneStep(std::int64_t skipped) : skipped_(skipped) {}
  GradientAction act(const GradientView& view) override {
    GradientAction action;
    action.skip = view.step == skipped_;
    return action;
  }
  std::string save() const override { return ""; }
  void restore(const std::string&) override {}

 private:
  std::int64_t skipped_;
};

/// Gives each step the batch of another one, and skips the update of one step.
class OrderExperiment : public Experiment {
 public:
  OrderExperiment(std::map<std::int64_t, Batch>& batches, std::map<std::int64_t, std::int64_t> order,
                  std::int64_t skipped)
      : batches_(batches), order_(std::move(order)), rule_(skipped) {}
  void change_batch(std::int64_t step, std::int64_t, Batch& batch) override {
    if (order_.empty()) batches_[step] = batch;
    if (order_.contains(step)) batch = batches_.at(order_.at(step));
  }
  GradientRule* gradient_rule() override { return &rule_; }

 private:
  std::map<std::int64_t, Batch>& batches_;
  std::map<std::int64_t, std::int64_t> order_;
  SkipOneStep rule_;
};

TEST(TrainerLate, AHeldBatchIsOneThatComesLaterInHighPrecision) {
  const SmallRuns runs;
  run::TrainSettings settings = late_settings(runs, "held");
  settings.steps = 18;
  settings.warmup = 1;
  settings.min_lr = 1;  // steps by hand have rates of their own
  settings.options.max_o = 0;
  const FinishedRun done = finish(settings, {}, with(nan_in({12})));
  ASSERT_EQ(trials_of(settings).size(), 1u);
  // The same by hand: a run that nobody judges, with the batches in that order, and no update in step 12.
  std::map<std::int64_t, Batch> batches;
  const auto ordered = [&](const std::map<std::int64_t, std::int64_t>& order, std::int64_t skipped) {
    return [&batches, order, skipped](const run::TrainSettings&, const std::vector<std::string>&) {
      return std::make_unique<OrderExperiment>(batches, order, skipped);
    };
  };
  settings.controller = "none";
  settings.out = runs.file("record");
  finish(settings, {}, ordered({}, 0));
  settings.out = runs.file("by hand");
  settings.steps = 19;
  settings.set = {"*=high@14:14"};
  const FinishedRun by_hand =
      finish(settings, {}, ordered({{14, 12}, {15, 14}, {16, 15}, {17, 16}, {18, 17}, {19, 18}}, 12));
  EXPECT_TRUE(same_weights(done.weights, by_hand.weights));
}

TEST(TrainerLate, WithoutAnAlarmARunIsThatOfLagZero) {
  const SmallRuns runs;
  for (const char* const recipe : {"fp8-delayed", "nvfp4-hadamard"}) {
    run::TrainSettings settings = late_settings(runs, std::string("late") + recipe);
    settings.recipe = recipe;
    settings.eval_every = 7;
    const FinishedRun late = finish(settings, {}, with({}));
    settings.out = runs.file(std::string("prompt") + recipe);
    settings.options.lag = 0;
    const FinishedRun prompt = finish(settings, {}, with({}));
    EXPECT_TRUE(same_weights(late.weights, prompt.weights)) << recipe;
    EXPECT_EQ(late.recorder.lines, prompt.recorder.lines);
    EXPECT_EQ(late.recorder.evals, prompt.recorder.evals);
  }
}

TEST(TrainerLate, AnErrorAboveItsLimitIsHeldInItsOwnStep) {
  const SmallRuns runs;
  run::TrainSettings settings = late_settings(runs, "patrol");
  settings.patrol = 1;
  settings.options.warmup_samples = 7;  // batch 12 is after the first decisions; the patrol dismisses what norms find
  const FinishedRun done = finish(settings, {}, with({.steps = {12}}));
  const std::vector<io::JournalTrial> trials = trials_of(settings);
  ASSERT_GE(trials.size(), 1u);
  EXPECT_EQ(alarm_of(settings, 12), "held");
  EXPECT_FALSE(done.recorder.lines[11].applied);
  EXPECT_EQ(trials[0].step, 14);
  EXPECT_EQ(done.recorder.lines[13].batch, 12);
  EXPECT_EQ(trials[0].verdict, "numeric");
  EXPECT_EQ(trials[0].units, std::vector<std::string>{"layers.0.gate"});
  EXPECT_EQ(trials[0].losses.size(), 2u) << "that of the held run, too";
  EXPECT_EQ(trials[0].why.rfind("step 12, patrol: layers.0.gate", 0), 0u) << trials[0].why;
  EXPECT_EQ(done.outcome.control.held, done.outcome.control.trials);
  EXPECT_EQ(done.recorder.lines[15].recovered, 1);
}

/// Lines as text: NaN is like NaN.
std::string text_of(const std::vector<run::TrainLine>& lines) {
  std::ostringstream text;
  text.precision(17);
  for (const run::TrainLine& line : lines) {
    text << line.step << ' ' << line.batch.value_or(0) << ' ' << line.loss << ' ' << line.lr << ' ' << line.grad_norm
         << ' ' << line.clip << ' ' << line.applied << ' ' << line.recovered.value_or(0) << ' ' << line.high << '\n';
  }
  return text.str();
}

/// Stops a run after a step and goes on; everything must be as in the whole run.
void expect_same_after_a_stop(const SmallRuns& runs, const run::TrainSettings& settings, const Trouble& trouble,
                              const std::vector<std::int64_t>& stops) {
  const FinishedRun whole = finish(settings, {}, with(trouble));
  const std::string journal = testing::decisions_of(settings.out + "/journal.jsonl");
  const std::vector<io::JournalTrial> trials = trials_of(settings);
  for (const std::int64_t stop : stops) {
    run::TrainSettings parts = settings;
    parts.out = runs.file(settings.out.substr(settings.out.rfind('/') + 1) + "-stopped" + std::to_string(stop));
    Recorder recorder;
    recorder.stop_after = stop;
    const FinishedRun first = finish(parts, std::move(recorder), with(trouble));
    parts.resume = true;
    const FinishedRun rest = finish(parts, {}, with(trouble));
    EXPECT_TRUE(same_weights(rest.weights, whole.weights)) << stop;
    EXPECT_EQ(testing::decisions_of(parts.out + "/journal.jsonl"), journal) << stop;
    std::vector<run::TrainLine> lines = first.recorder.lines;
    lines.insert(lines.end(), rest.recorder.lines.begin(), rest.recorder.lines.end());
    EXPECT_EQ(text_of(lines), text_of(whole.recorder.lines)) << stop;
    const std::vector<io::JournalTrial> again = trials_of(parts);
    ASSERT_EQ(again.size(), trials.size()) << stop;
    for (std::size_t index = 0; index < trials.size(); ++index) {
      EXPECT_EQ(again[index].step, trials[index].step);
      EXPECT_EQ(again[index].verdict, trials[index].verdict);
      EXPECT_EQ(again[index].why, trials[index].why);
      EXPECT_EQ(again[index].distance.has_value(), trials[index].distance.has_value());
    }
  }
}

TEST(TrainerLate, GoesOnBitForBitFromAnyStep) {
  const SmallRuns runs;
  run::TrainSettings settings = late_settings(runs, "whole");
  settings.recipe = "fp8-delayed";
  settings.steps = 24;
  settings.eval_every = 6;
  settings.patrol = 0.3;
  settings.options.warmup_samples = 5;
  // After 12 the held batch is not yet heard of, after 13 it waits, 14 is its trial.
  expect_same_after_a_stop(runs, settings, nan_in({8, 12, 13, 18}), {1, 7, 8, 9, 10, 12, 13, 14, 15, 18, 19, 20});
}

TEST(TrainerLate, GoesOnBitForBitAmongItsLastSteps) {
  const SmallRuns runs;
  run::TrainSettings settings = late_settings(runs, "last");
  settings.steps = 14;
  settings.then_at = 13;
  settings.then_lr = 0.002;
  // Step 15 is that of a batch after the last one, which does not run: 16 has the last batch.
  expect_same_after_a_stop(runs, settings, nan_in({14}), {12, 13, 14});
  settings.out = runs.file("last two");
  expect_same_after_a_stop(runs, settings, nan_in({13, 14}), {12, 13, 14, 15});
}

TEST(TrainerLate, GoesOnBitForBitWithTheLimitsOfThePlan) {
  const SmallRuns runs;
  run::TrainSettings settings = late_settings(runs, "limits");
  settings.patrol = 1;
  settings.options.warmup_samples = 7;  // batch 12 is after the first decisions
  settings.steps = 22;
  // A gate without limits would let 13 pass after a stop at 12.
  expect_same_after_a_stop(runs, settings, {.steps = {12, 13, 17}}, {11, 12, 13, 14, 16});
}

TEST(TrainerLate, GoesOnBitForBitWithGuards) {
  const SmallRuns runs;
  for (const Guard guard : {Guard::skip, Guard::replay}) {
    run::TrainSettings settings = late_settings(runs, guard == Guard::skip ? "skip" : "replay");
    settings.options.selector = Selector::norms;
    settings.options.guard = guard;
    settings.options.common_share = 1;
    settings.steps = 22;
    expect_same_after_a_stop(runs, settings, nan_in({12, 15}), {12, 13, 14});
  }
}

TEST(TrainerLate, SkipLosesTheBatchAndReplayRunsItWithTheNewUnitsHigh) {
  const SmallRuns runs;
  run::TrainSettings settings = late_settings(runs, "skip");
  settings.options.selector = Selector::norms;
  settings.options.guard = Guard::skip;
  settings.options.common_share = 1;
  const FinishedRun skipped = finish(settings, {}, with(nan_in({12})));
  EXPECT_FALSE(skipped.recorder.lines[11].applied);
  EXPECT_EQ(skipped.recorder.lines.size(), 30u) << "what is skipped does not come again";
  EXPECT_GE(skipped.outcome.skipped_updates, 1);
  EXPECT_EQ(skipped.outcome.control.replays, 0u);
  EXPECT_TRUE(trials_of(settings).empty());
  settings.out = runs.file("replay");
  settings.options.guard = Guard::replay;
  const FinishedRun replayed = finish(settings, {}, with(nan_in({12})));
  EXPECT_GE(replayed.outcome.control.replays, 1u);
  const std::vector<io::JournalTrial> lines = trials_of(settings);
  const auto found = std::find_if(lines.begin(), lines.end(), [](const auto& line) { return line.step == 14; });
  ASSERT_NE(found, lines.end());
  EXPECT_EQ(found->rerun, "replay");
  EXPECT_EQ(replayed.recorder.lines[13].recovered, 2) << "those that the decision of 12 admitted";
}

TEST(TrainerLate, TheCapIsHardAndNoBatchIsLost) {
  const SmallRuns runs;
  run::TrainSettings settings = late_settings(runs, "cap");
  settings.options.max_trials = 2;
  settings.options.max_o = 0;
  const FinishedRun done = finish(settings, {}, with(nan_in({10, 11, 12, 13, 14, 15, 16, 17})));
  EXPECT_EQ(done.outcome.control.trials, 2u);
  EXPECT_EQ(done.outcome.control.held, 2u);
  EXPECT_EQ(alarm_of(settings, 14), "spent") << "12 and 13 are the trials of batches 10 and 11";
}

TEST(TrainerLate, WithoutMemoryForATrialItIsAPlainStep) {
  const SmallRuns runs;
  run::TrainSettings settings = late_settings(runs, "memory");
  settings.patrol = 1;
  Trouble trouble = nan_in({12});
  trouble.fails_again = true;
  const FinishedRun done = finish(settings, {}, with(trouble));
  EXPECT_EQ(done.outcome.control.trials, 0u);
  ASSERT_GE(done.recorder.notes.size(), 1u);
  EXPECT_NE(done.recorder.notes[0].find("a trial failed"), std::string::npos);
  EXPECT_GE(done.outcome.control.admissions, 1u) << "the patrol decides";
  EXPECT_TRUE(done.outcome.finished);
}

TEST(TrainerLate, WatchingHoldsNothingAndChangesNothing) {
  const SmallRuns runs;
  run::TrainSettings settings = late_settings(runs, "watch");
  settings.controller = "watch";
  const Trouble trouble{.steps = {12, 13}};
  const FinishedRun watched = finish(settings, {}, with(trouble));
  EXPECT_EQ(watched.outcome.control.held, 0u);
  EXPECT_EQ(watched.outcome.control.trials, 0u);
  settings.out = runs.file("none");
  settings.controller = "none";
  EXPECT_TRUE(same_weights(finish(settings, {}, with(trouble)).weights, watched.weights));
}

TEST(TrainerLate, WhatNeedsTheHostBeforeTheUpdateIsRefused) {
  const SmallRuns runs;
  run::TrainSettings settings = late_settings(runs, "clip");
  settings.options.guard = Guard::clip;
  EXPECT_NE(test::error_of<Error>([&] { finish(settings); }).find("lag 0"), std::string::npos);
  settings.options.guard = Guard::none;
  settings.controller = "watch";
  settings.experiment.rival = "zclip";
  EXPECT_NE(test::error_of<Error>([&] { finish(settings); }).find("lag"), std::string::npos);
}

TEST(TrainerLate, ARunMayGoOnWithoutAGate) {
  const SmallRuns runs;
  run::TrainSettings settings = late_settings(runs, "change");
  settings.steps = 20;
  Recorder recorder;
  recorder.stop_after = 12;  // batch 12 was held
  finish(settings, std::move(recorder), with(nan_in({12})));
  settings.resume = true;
  settings.options.lag = 0;
  const FinishedRun rest = finish(settings, {}, with(nan_in({12})));
  EXPECT_TRUE(rest.outcome.finished);
  EXPECT_EQ(rest.outcome.skipped_updates, 0);
  EXPECT_EQ(run::batch_of(rest.recorder.lines.back()), settings.steps);
  EXPECT_EQ(rest.outcome.last_step, settings.steps + 1) << "12 ran twice";
  const std::vector<io::JournalTrial> trials = trials_of(settings);
  const auto found = std::find_if(trials.begin(), trials.end(), [](const auto& trial) { return trial.step == 14; });
  ASSERT_NE(found, trials.end()) << "the batch came in a plain step, which was alarmed and run again at once";
}

TEST(TrainerLate, AFinishedRunHasNothingLeftWithoutAGate) {
  const SmallRuns runs;
  run::TrainSettings settings = late_settings(runs, "finished");
  settings.steps = 8;
  const std::int64_t last = finish(settings, {}, {}).outcome.last_step;
  const std::size_t steps = io::read_journal(settings.out + "/journal.jsonl").steps.size();
  settings.resume = true;
  settings.options.lag = 0;
  const FinishedRun rest = finish(settings, {}, {});
  EXPECT_TRUE(rest.outcome.finished);
  EXPECT_EQ(last, settings.steps);
  EXPECT_TRUE(rest.recorder.lines.empty());
  EXPECT_EQ(io::read_journal(settings.out + "/journal.jsonl").steps.size(), steps)
      << "the batch that was planned after the last one is no step";
}

}  // namespace
}  // namespace gnmr::train
