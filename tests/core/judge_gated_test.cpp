// SPDX-License-Identifier: Apache-2.0
// Steps with a gate against the naive implementation, and what must hold of every such run.
#include "gnmr/core/judge_gated.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/gated_run.h"
#include "core/naive_judge_gated.h"
#include "core/to_naive.h"
#include "gnmr/core/error.h"

namespace gnmr {
namespace {

using testing::GatedRun;
using testing::GatedStep;
using testing::NormArrays;
using testing::Random;
using testing::RandomErrors;
using testing::RandomRun;
using testing::same_bits;
using testing::to_naive;
using testing::to_sizes;

std::string word(PassKind pass) {
  return pass == PassKind::trial ? "trial" : pass == PassKind::replay ? "replay" : "plain";
}

std::string word(HoldRule hold) {
  return hold == HoldRule::for_trial ? "trial" : hold == HoldRule::for_guard ? "guard" : "none";
}

bool same_plan(const StepPlan& ours, const naive::Plan& theirs) {
  return ours.step == theirs.step && ours.batch == theirs.batch && word(ours.pass) == theirs.pass &&
         word(ours.hold) == theirs.gate;
}

bool same_end(const Hearing& hearing, const Ruling& ruling, bool calls, const naive::Settled& theirs) {
  return to_string(ruling.action) == theirs.ruling.action && hearing.alarmed == theirs.hearing.alarmed &&
         hearing.dismissed == theirs.hearing.dismissed && hearing.spent == theirs.hearing.spent &&
         calls == theirs.called && to_string(ruling.verdict) == theirs.ruling.verdict &&
         testing::same_decision(ruling.decision, theirs.ruling.decision) &&
         to_sizes(ruling.units) == theirs.ruling.told;
}

bool same_memory(const Judge& judge, const naive::Judge& expected) {
  const JudgeState state = judge.save();
  bool same = state.reruns_ago.size() == static_cast<std::size_t>(expected.reruns());
  for (std::size_t i = 0; i < state.errors.size(); ++i) {
    same = same && state.errors[i].samples == expected.k(i / state.places, i % state.places) &&
           same_bits(state.errors[i].mean_sum, expected.m(i / state.places, i % state.places));
  }
  for (std::size_t i = 0; i < state.controller.units.size(); ++i) {
    const UnitState& unit = state.controller.units[i];
    same = same && unit.samples == expected.controller().k(i) && same_bits(unit.mean_sum, expected.controller().m(i)) &&
           unit.steps_left == expected.controller().steps_left(i) &&
           unit.zero_muted == expected.controller().zeros_ignored(i);
  }
  return same;
}

/// One random run of both.
class Comparison {
 public:
  explicit Comparison(std::uint64_t seed)
      : random_(seed),
        units_(testing::random_units(random_, 1 + random_.below(40))),
        options_(testing::random_gated_options(random_)),
        settings_{.places = 2, .expected = {0.02, 0.0}, .can_rerun = true},
        ours_(units_, options_, settings_),
        theirs_(to_naive(units_), to_naive(options_), settings_.expected, true),
        norms_(random_, units_.size()),
        errors_(random_, units_.size(), settings_.places),
        watches_(random_.chance(0.3)),
        stops_(random_.chance(0.5)) {}

  const std::map<std::string, int>& counts() const { return counts_; }

  /// The first step that differs; -1: none.
  std::int64_t run(std::int64_t steps) {
    std::optional<GatedStep> last;
    for (std::int64_t number = 1; number <= steps; ++number) {
      GatedStep step = draw();
      if (!begin(step, number)) return number;
      if (last && !settle(*last)) return number;
      last = step;
      if (!stops_ || !random_.chance(0.1)) continue;
      // A checkpoint: the step is heard early, after the next one has been planned.
      if (!plan(number + 1) || !settle(*last)) return number;
      last.reset();
      ours_.resume();
      if (!same_memory(*ours_.judge, theirs_)) return number;
      ++counts_["resumed"];
    }
    return -1;
  }

 private:
  GatedStep draw() {
    GatedStep step{.plan = {}, .norms = norms_.next(), .errors = errors_.patrol()};
    step.in_force = !watches_ || random_.chance(0.8);
    step.failed = random_.chance(0.1);
    return step;
  }

  bool plan(std::int64_t number) {
    if (ours_.flags_of_step == number) return true;
    ours_.plan(number);
    const naive::Plan& expected = theirs_.plan(number);
    for (UnitIndex unit = 0; unit < units_.size(); ++unit) {
      if (expected.free[unit] != ((ours_.flags[unit] & kernels::unit_flag::kFree) != 0)) return false;
    }
    return true;
  }

  bool begin(GatedStep& step, std::int64_t number) {
    if (!plan(number)) return false;
    ours_.run(step, number);
    const naive::Plan expected = theirs_.begin(!step.in_force);
    if (!same_plan(step.plan, expected)) return false;
    if (step.failed) theirs_.trial_fails();
    if (step.plan.pass == PassKind::trial && !step.failed) step.errors = errors_.trial();
    ++counts_[word(step.plan.pass) + (step.plan.again ? " again" : "")];
    ++counts_["gate: " + word(step.plan.hold)];
    counts_["failed"] += step.failed ? 1 : 0;
    const bool closes = theirs_.closes(step.norms);
    if (closes) ++counts_["held: " + word(step.plan.hold)];
    return step.held == closes;
  }

  bool settle(const GatedStep& step) {
    const NormArrays arrays(step.norms);
    const Observation observation{.step = step.plan.step, .norms = arrays.norms, .sampled = arrays.sampled};
    if (random_.chance(0.02)) {  // an error changes nothing
      const std::vector<double> bad(units_.size() * settings_.places, -1.0);
      EXPECT_THROW(ours_.steps->hear(observation, bad, step.held), Error);
      EXPECT_THROW(ours_.steps->hear({.step = step.plan.step + 1, .norms = arrays.norms}, {}, false), Error);
      EXPECT_THROW(ours_.steps->decide(), Error);
    }
    const naive::Settled expected = theirs_.settle(step.norms, step.errors, step.held);
    const Hearing hearing = ours_.steps->hear(observation, step.errors, step.held);
    const Ruling& ruling = ours_.steps->decide();
    counts_["called"] += expected.called ? 1 : 0;
    counts_["spent"] += expected.hearing.spent ? 1 : 0;
    ++counts_["ends in " + expected.ruling.action];
    ++counts_["verdict " + expected.ruling.verdict];
    counts_["admitted"] += static_cast<int>(expected.ruling.decision.admitted.size());
    return same_end(hearing, ruling, ours_.steps->calls(), expected) &&
           (step.plan.step % 37 != 0 || same_memory(*ours_.judge, theirs_));
  }

  Random random_;
  std::vector<Unit> units_;
  Options options_;
  JudgeSettings settings_;
  GatedRun ours_;
  naive::GatedJudge theirs_;
  RandomRun norms_;
  RandomErrors errors_;
  bool watches_, stops_;
  std::map<std::string, int> counts_;
};

TEST(GatedSteps, AreThoseOfTheNaiveImplementation) {
#if defined(__SANITIZE_ADDRESS__)
  constexpr std::uint64_t kSeeds = 60;
  constexpr int kFewest = 1;
#else
  constexpr std::uint64_t kSeeds = 500;
  constexpr int kFewest = 30;
#endif
  std::map<std::string, int> counts;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    Comparison comparison(seed);
    ASSERT_EQ(comparison.run(seed % 20 == 0 ? 1200 : 250), -1) << "seed " << seed;
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
    for (const auto& [name, count] : comparison.counts()) counts[name] += count;
  }
  // Everything that can happen did.
  for (const char* name : {"plain",           "plain again",    "trial",
                           "trial again",     "replay again",   "gate: none",
                           "gate: trial",     "gate: guard",    "held: trial",
                           "held: guard",     "failed",         "called",
                           "spent",           "resumed",        "ends in proceed",
                           "ends in hold",    "ends in replay", "ends in trial",
                           "verdict numeric", "verdict common", "verdict unlocated",
                           "admitted"}) {
    EXPECT_GE(counts[name], kFewest) << name;
  }
}

/// A run of random norms, without a second opinion: every step as it ended.
class GatedProperties : public ::testing::Test {
 protected:
  struct Ended {
    GatedStep step;
    Action action;
    std::size_t recovered;
  };

  /// All steps of a run but the last.
  std::vector<Ended> take_all(std::uint64_t seed, std::int64_t count) {
    Random random(seed);
    const std::vector<Unit> units = testing::random_units(random, 3 + random.below(30));
    const Options options = testing::random_gated_options(random);
    cap_ = options.max_trials;
    run_.emplace(units, options, JudgeSettings{.places = 2, .expected = {0.02, 0.0}, .can_rerun = true});
    RandomRun norms(random, units.size());
    RandomErrors errors(random, units.size(), 2);
    std::vector<Ended> ended;
    for (std::int64_t number = 1; number <= count; ++number) {
      Ended now{.step = {.plan = {}, .norms = norms.next(), .errors = errors.patrol()}, .action = {}, .recovered = 0};
      now.step.failed = random.chance(0.05);
      run_->run(now.step, number);
      if (!ended.empty()) settle(ended.back());
      ended.push_back(now);
    }
    ended.pop_back();
    return ended;
  }

  void settle(Ended& ended) {
    const NormArrays arrays(ended.step.norms);
    run_->steps->hear({.step = ended.step.plan.step, .norms = arrays.norms, .sampled = arrays.sampled},
                      ended.step.errors, ended.step.held);
    const Ruling& ruling = run_->steps->decide();
    ended.action = ruling.action;
    ended.recovered = ruling.decision.recovered.size();
  }

  std::optional<GatedRun> run_;
  std::int64_t cap_ = 0;
};

TEST_F(GatedProperties, NeverMoreRerunsInAHundredStepsThanTheCap) {
  std::int64_t most_used = 0;
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    std::vector<int> reruns;
    for (const Ended& ended : take_all(seed, 400)) {
      reruns.push_back(ended.step.plan.pass != PassKind::step ? 1 : 0);
      const auto first = reruns.end() - std::min<std::ptrdiff_t>(100, std::ssize(reruns));
      const std::int64_t used = std::count(first, reruns.end(), 1);
      ASSERT_LE(used, cap_) << "seed " << seed << ", step " << reruns.size();
      if (cap_ == 20) most_used = std::max(most_used, used);
    }
  }
  EXPECT_GE(most_used, 19);  // the cap was tested
}

TEST_F(GatedProperties, EveryBatchIsTrainedOnOnceUnlessSkippedOrWaiting) {
  int again = 0;
  for (std::uint64_t seed = 300; seed < 420; ++seed) {
    const std::vector<Ended> all = take_all(seed, 300);
    std::map<std::int64_t, int> updates;
    std::set<std::int64_t> skipped;
    std::int64_t last = 0;
    for (const Ended& ended : all) {
      const StepPlan& plan = ended.step.plan;
      again += plan.again ? 1 : 0;
      if (!plan.again) {
        ASSERT_EQ(plan.batch, ++last) << "fresh batches come in order";
      }
      updates[plan.batch] += ended.step.held ? 0 : 1;
      if (ended.action == Action::hold) skipped.insert(plan.batch);
      ASSERT_TRUE(!ended.step.held || !plan.again) << "what comes again is not held again";
      ASSERT_LE(ended.recovered, run_->judge->controller().max_recovered());
    }
    std::set<std::int64_t> waiting;
    for (const WaitingBatch& batch : run_->steps->state().waiting) waiting.insert(batch.batch);
    for (const UndecidedStep& step : run_->steps->state().undecided) waiting.insert(step.plan.batch);
    for (const auto& [batch, count] : updates) {
      ASSERT_EQ(count, skipped.contains(batch) || waiting.contains(batch) ? 0 : 1) << "seed " << seed << ", " << batch;
    }
  }
  EXPECT_GT(again, 300);
}

TEST_F(GatedProperties, AHeldStepLeavesHistoriesAndErrorsAsTheyWere) {
  int held = 0;
  for (std::uint64_t seed = 500; seed < 540; ++seed) {
    Random random(seed);
    const std::vector<Unit> units = testing::random_units(random, 12);
    Options options = testing::random_gated_options(random);
    options.selector = Selector::trial;
    options.max_trials = 100;
    GatedRun run(units, options, {.places = 2, .expected = {0.02, 0.0}, .can_rerun = true});
    RandomRun norms(random, units.size());
    RandomErrors errors(random, units.size(), 2);
    for (std::int64_t number = 1; number <= 200; ++number) {
      GatedStep step{.plan = {}, .norms = norms.next(), .errors = errors.patrol()};
      run.run(step, number);
      run.plan(number + 1);
      const JudgeState before = run.judge->save();
      const NormArrays arrays(step.norms);
      run.steps->hear({.step = number, .norms = arrays.norms, .sampled = arrays.sampled}, step.errors, step.held);
      const Ruling& ruling = run.steps->decide();
      if (!step.held) continue;
      ++held;
      ASSERT_TRUE(ruling.decision.admitted.empty() && ruling.decision.futile.empty() && !ruling.decision.common);
      const JudgeState after = run.judge->save();
      ASSERT_EQ(after.errors, before.errors);
      for (std::size_t unit = 0; unit < units.size(); ++unit) {
        ASSERT_EQ(after.controller.units[unit].samples, before.controller.units[unit].samples);
        ASSERT_EQ(after.controller.units[unit].ratios, before.controller.units[unit].ratios);
        ASSERT_LE(after.controller.units[unit].steps_left, before.controller.units[unit].steps_left);
      }
      ASSERT_EQ(after.controller.decisions, before.controller.decisions + 1);
    }
  }
  EXPECT_GT(held, 200);
}

TEST(GatedSteps, WhatNeedsTheHostBeforeTheUpdateIsRefused) {
  const auto refused = [](Selector selector, Guard guard, int lag) {
    Options options;
    options.selector = selector;
    options.guard = guard;
    options.lag = lag;
    try {
      GatedSteps::check(options);
    } catch (const Error& error) {
      return std::string(error.what()).find("lag 0") != std::string::npos;
    }
    return false;
  };
  EXPECT_TRUE(refused(Selector::norms, Guard::clip, 1));
  EXPECT_TRUE(refused(Selector::automatic, Guard::clip, 1));
  EXPECT_TRUE(refused(Selector::evidence, Guard::skip, 1));
  EXPECT_TRUE(refused(Selector::evidence_after_alarm, Guard::replay, 1));
  EXPECT_FALSE(refused(Selector::evidence, Guard::none, 1));
  EXPECT_FALSE(refused(Selector::trial, Guard::skip, 1));
  EXPECT_FALSE(refused(Selector::norms, Guard::replay, 1));
  EXPECT_FALSE(refused(Selector::norms, Guard::clip, 0));
}

TEST(GatedSteps, BatchesThatWaitComeFirstInARunWithoutAGate) {
  Options options;
  options.lag = 0;
  Judge judge({{.name = "a"}}, options, {.can_rerun = true});
  GatedSteps steps(judge);
  EXPECT_EQ(steps.take_batch(7), 7) << "without a past batch and step have one number";
  steps.restore({.next_batch = 12,
                 .waiting = {{.batch = 9, .pass = PassKind::trial}},
                 .called = true,
                 .undecided = {{.plan = {.step = 12, .batch = 8, .pass = PassKind::trial, .again = true}}}},
                /*gated=*/false);
  EXPECT_EQ(steps.take_batch(12), 8);
  EXPECT_EQ(steps.take_batch(13), 9);
  EXPECT_EQ(steps.take_batch(14), 12);
  EXPECT_EQ(steps.take_batch(15), 13);
}

}  // namespace
}  // namespace gnmr
