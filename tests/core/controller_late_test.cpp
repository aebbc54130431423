// SPDX-License-Identifier: Apache-2.0
// Steps with lag 1 against the naive implementation, and what must hold of every such run.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/late_run.h"
#include "core/naive_judge_gated.h"
#include "core/standing_events.h"
#include "core/to_naive.h"
#include "gnmr/core/controller.h"
#include "gnmr/core/error.h"

namespace gnmr {
namespace {

using testing::LateRun;
using testing::LateStep;
using testing::NormArrays;
using testing::Patrols;
using testing::Random;
using testing::RandomErrors;
using testing::RandomRun;
using testing::same_bits;
using testing::to_naive;

std::string word(PassKind pass) {
  return pass == PassKind::trial ? "trial" : pass == PassKind::replay ? "replay" : "plain";
}

std::string word(HoldRule hold) {
  return hold == HoldRule::for_trial ? "trial" : hold == HoldRule::for_guard ? "guard" : "none";
}

bool same_units(const std::vector<bool>& theirs, std::span<const std::uint8_t> ours, std::uint8_t bit) {
  return std::equal(ours.begin(), ours.end(), theirs.begin(), theirs.end(),
                    [bit](std::uint8_t flags, bool expected) { return ((flags & bit) != 0) == expected; });
}

bool same_doubt(std::int64_t theirs, std::span<const std::uint8_t> ours) {
  return std::all_of(ours.begin(), ours.end(), [theirs](std::uint8_t flags) {
    return 1 << ((flags & gate_flag::kDoubt) >> gate_flag::kDoubtShift) == theirs;
  });
}

bool same_limits(const StepPlan& ours, const naive::Plan& theirs) {
  std::vector<float> all;
  for (const std::vector<float>& of_unit : theirs.limits) all.insert(all.end(), of_unit.begin(), of_unit.end());
  return std::equal(ours.error_limits.begin(), ours.error_limits.end(), all.begin(), all.end());
}

bool same_plan(const StepPlan& ours, const naive::Plan& theirs) {
  const bool switches = ours.mode == Mode::armed;
  const std::vector<bool> none(theirs.high.size());
  const std::vector<bool> all(theirs.high.size(), true);
  return ours.step == theirs.step && ours.batch == theirs.batch && word(ours.pass) == theirs.pass &&
         word(ours.hold) == theirs.gate && same_units(theirs.free, ours.gate_flags, gate_flag::kFree) &&
         same_units(theirs.zero_is_no_sample, ours.gate_flags, gate_flag::kZeroMuted) &&
         same_doubt(theirs.doubt, ours.gate_flags) && same_limits(ours, theirs) &&
         ours.recovered.size() ==
             (switches ? static_cast<std::size_t>(std::count(theirs.high.begin(), theirs.high.end(), true)) : 0) &&
         testing::to_sizes(ours.measure) == (switches ? theirs.measure : std::vector<std::size_t>{}) &&
         same_units(ours.pass == PassKind::trial ? all
                    : switches                   ? theirs.high
                                                 : none,
                    ours.path, kHighPath);
}

/// A step that was held for a trial has findings, but no ruling of its own.
bool same_findings(std::span<const Finding> ours, const naive::Settled& theirs, bool held_for_trial) {
  const std::vector<std::size_t>& units = held_for_trial ? theirs.hearing.told : theirs.ruling.told;
  if (ours.size() != units.size()) return false;
  for (std::size_t i = 0; i < units.size(); ++i) {
    if (ours[i].unit != units[i]) return false;
    if (held_for_trial) continue;
    if (!same_bits(ours[i].error, theirs.ruling.errors[i]) || ours[i].site != theirs.ruling.places[i]) return false;
    if (!same_bits(ours[i].excess, theirs.ruling.excesses[i])) return false;
  }
  return true;
}

bool same_end(const Outcome& ours, const naive::Settled& theirs, const LateStep& step) {
  const bool dropped = step.done == Completion::dropped;
  const std::string action = ours.action == Action::rerun  ? word(ours.rerun)
                             : ours.action == Action::hold ? "hold"
                                                           : "proceed";
  return action == (dropped ? "hold" : theirs.ruling.action) && ours.alarmed == theirs.hearing.alarmed &&
         ours.dismissed == theirs.hearing.dismissed && ours.spent == theirs.hearing.spent &&
         ours.called == theirs.called && to_string(ours.verdict) == (dropped ? "none" : theirs.ruling.verdict) &&
         testing::same_decision(ours.decision, theirs.ruling.decision) &&
         same_findings(ours.findings, theirs, step.held && step.plan.hold == HoldRule::for_trial) &&
         ours.decided_step == ours.step && ours.in_force_from == ours.step + 2;
}

bool same_memory(const Controller& controller, const naive::Judge& expected) {
  const ControllerState state = controller.save();
  bool same = state.reruns_ago.size() == static_cast<std::size_t>(expected.reruns()) &&
              state.doubt.value == static_cast<std::uint32_t>(expected.doubt()) &&
              state.doubt.decisions_left == static_cast<std::uint32_t>(expected.doubt_holds_for());
  for (std::size_t i = 0; i < state.errors.size(); ++i) {
    same = same && state.errors[i].samples == expected.k(i / state.sites, i % state.sites) &&
           same_bits(state.errors[i].mean_sum, expected.m(i / state.sites, i % state.sites));
  }
  for (std::size_t i = 0; i < state.units.size(); ++i) {
    const UnitState& unit = state.units[i];
    same = same && unit.samples == expected.controller().k(i) && same_bits(unit.mean_sum, expected.controller().m(i)) &&
           unit.steps_left == expected.controller().steps_left(i) &&
           unit.zero_muted == expected.controller().zeros_ignored(i);
  }
  return same && testing::same_bucket(state, expected.controller()) && testing::same_levels(state, expected);
}

/// One random run of both.
class Comparison {
 public:
  Comparison(std::uint64_t seed, Patrols patrols)
      : random_(seed),
        units_(testing::random_units(random_, 1 + random_.below(40))),
        options_(testing::random_late_options(random_, patrols)),
        backend_{.can_rerun = true, .sites = 2, .expected_errors = {0.02, 0.0}},
        ours_(units_, options_, backend_),
        theirs_(to_naive(units_), to_naive(options_), backend_.expected_errors, true),
        norms_(random_, units_.size()),
        errors_(random_, units_.size(), backend_.sites, patrols),
        watches_(random_.chance(0.3)),
        stops_(random_.chance(0.5)) {}

  const std::map<std::string, int>& counts() const { return counts_; }

  /// The first step that differs; -1: none.
  std::int64_t run(std::int64_t steps) {
    std::optional<LateStep> last;
    for (std::int64_t number = 1; number <= steps; ++number) {
      LateStep step = draw();
      if (!begin(step, number)) return number;
      if (last && !settle(*last)) return number;
      last = step;
      if (!stops_ || !random_.chance(0.1)) continue;
      // A checkpoint: the step is reported early, which plans the next one first.
      plan(number + 1);
      if (!settle(*last)) return number;
      last.reset();
      ours_.resume();
      if (!same_memory(ours_.controller(), theirs_)) return number;
      ++counts_["resumed"];
    }
    return -1;
  }

 private:
  LateStep draw() {
    LateStep step{.plan = {}, .norms = norms_.next(), .errors = errors_.patrol()};
    step.in_force = !watches_ || random_.chance(0.8);
    if (random_.chance(0.1)) step.done = Completion::rerun_failed;
    if (random_.chance(0.03)) step.done = Completion::dropped;
    return step;
  }

  void plan(std::int64_t number) {
    if (planned_ < number) theirs_.plan(number);
    planned_ = number;
  }

  bool begin(LateStep& step, std::int64_t number) {
    plan(number);
    const naive::Plan expected = theirs_.begin(!step.in_force);
    const StepPlan& begun = ours_.run(step, number);
    if (!same_plan(begun, expected)) return false;
    const bool failed = step.done == Completion::rerun_failed;
    const bool dropped = step.done == Completion::dropped;
    if (failed) theirs_.trial_fails();
    if (step.plan.pass == PassKind::trial && !failed) step.errors = errors_.trial();
    if (dropped) step.errors.clear();
    counts_["measured besides"] += static_cast<int>(begun.measure.size());
    ++counts_[word(step.plan.pass) + (step.plan.again ? " again" : "")];
    ++counts_["gate: " + word(step.plan.hold)];
    counts_["failed"] += failed ? 1 : 0;
    counts_["dropped"] += dropped ? 1 : 0;
    const bool closes = theirs_.closes(step.norms, step.errors);
    if (closes) ++counts_["held: " + word(step.plan.hold)];
    return step.held == closes;
  }

  bool settle(const LateStep& step) {
    if (random_.chance(0.02)) {  // an error changes nothing
      const NormArrays arrays(step.norms);
      const std::int64_t number = step.plan.step;
      const std::vector<double> bad(units_.size() * backend_.sites, -1.0);
      const ControllerState before = ours_.controller().save();
      EXPECT_THROW(ours_.report({.step = number, .norms = arrays.norms, .sampled = arrays.sampled, .errors = bad}),
                   Error);
      EXPECT_THROW(ours_.report({.step = number, .norms = std::span(bad).first(units_.size())}), Error);
      EXPECT_THROW(ours_.report({.step = number + 1, .norms = arrays.norms, .sampled = arrays.sampled}), Error);
      EXPECT_EQ(ours_.controller().save(), before);
    }
    const naive::Settled expected = theirs_.settle(step.norms, step.errors, step.held);
    const Outcome& outcome = ours_.report(step);
    standing_.count(expected.ruling.decision, theirs_.decisions() % 20 == 0, counts_);
    counts_["called"] += expected.called ? 1 : 0;
    counts_["spent"] += expected.hearing.spent ? 1 : 0;
    counts_["dismissed: " + word(step.plan.hold)] += expected.hearing.dismissed ? 1 : 0;
    if (step.held && !expected.hearing.told.empty()) ++counts_["held with errors: " + word(step.plan.hold)];
    ++counts_["doubt " + std::to_string(theirs_.doubt())];
    ++counts_["ends in " + expected.ruling.action];
    ++counts_["verdict " + expected.ruling.verdict];
    counts_["admitted"] += static_cast<int>(expected.ruling.decision.admitted.size());
    return same_end(outcome, expected, step) && (step.plan.step % 37 != 0 || same_memory(ours_.controller(), theirs_));
  }

  Random random_;
  std::vector<Unit> units_;
  Options options_;
  Backend backend_;
  LateRun ours_;
  naive::GatedJudge theirs_;
  RandomRun norms_;
  RandomErrors errors_;
  bool watches_, stops_;
  std::int64_t planned_ = 0;
  testing::StandingEvents standing_;
  std::map<std::string, int> counts_;
};

TEST(ControllerLate, StepsAreThoseOfTheNaiveImplementation) {
#if defined(__SANITIZE_ADDRESS__)
  constexpr std::uint64_t kSeeds = 60;
  constexpr int kFewest = 1;
#else
  constexpr std::uint64_t kSeeds = 300;
  constexpr int kFewest = 10;
#endif
  std::map<std::string, int> counts;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const Patrols patrols = seed % 3 == 1 ? Patrols::frequent : Patrols::any;
    Comparison comparison(seed, patrols);
    ASSERT_EQ(comparison.run(seed % 20 == 0 ? 1200 : patrols == Patrols::frequent ? 500 : 250), -1) << "seed " << seed;
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
                           "admitted",        "dropped",        "doubt 2",
                           "doubt 4",         "doubt 8"}) {
    EXPECT_GE(counts[name], kFewest) << name;
  }
  for (const char* name : {"dismissed: trial", "held with errors: trial", "held with errors: guard"}) {
    EXPECT_GE(counts[name], kFewest) << name;
  }
  for (const char* name : {"admitted", "displaced", "replaced", "ended by a review", "fills"}) {
    EXPECT_GE(counts[std::string("standing: ") + name], kFewest) << name;
  }
  EXPECT_GE(counts["measured besides"], kFewest);
}

/// A run of random norms, without a second opinion: every step as it ended.
class LateProperties : public ::testing::Test {
 protected:
  struct Ended {
    LateStep step;
    Action action;
    std::size_t recovered;
  };

  /// All steps of a run but the last.
  std::vector<Ended> take_all(std::uint64_t seed, std::int64_t count) {
    Random random(seed);
    const std::vector<Unit> units = testing::random_units(random, 3 + random.below(30));
    const Options options = testing::random_late_options(random);
    cap_ = options.max_trials;
    run_.emplace(units, options, Backend{.can_rerun = true, .sites = 2, .expected_errors = {0.02, 0.0}});
    RandomRun norms(random, units.size());
    RandomErrors errors(random, units.size(), 2);
    std::vector<Ended> ended;
    for (std::int64_t number = 1; number <= count; ++number) {
      Ended now{.step = {.plan = {}, .norms = norms.next(), .errors = errors.patrol()}, .action = {}, .recovered = 0};
      if (random.chance(0.05)) now.step.done = Completion::rerun_failed;
      run_->run(now.step, number);
      if (!ended.empty()) settle(ended.back());
      ended.push_back(now);
    }
    ended.pop_back();
    return ended;
  }

  void settle(Ended& ended) {
    const Outcome& outcome = run_->report(ended.step);
    ended.action = outcome.action;
    ended.recovered = outcome.decision.recovered.size();
  }

  std::optional<LateRun> run_;
  std::int64_t cap_ = 0;
};

TEST_F(LateProperties, NeverMoreRerunsInAHundredStepsThanTheCap) {
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

TEST_F(LateProperties, EveryBatchIsTrainedOnOnceUnlessSkippedOrWaiting) {
  int again = 0;
  for (std::uint64_t seed = 300; seed < 420; ++seed) {
    const std::vector<Ended> all = take_all(seed, 300);
    std::map<std::int64_t, int> updates;
    std::set<std::int64_t> skipped;
    std::int64_t last = 0;
    for (const Ended& ended : all) {
      const PlannedStep& plan = ended.step.plan;
      again += plan.again ? 1 : 0;
      if (!plan.again) {
        ASSERT_EQ(plan.batch, ++last) << "fresh batches come in order";
      }
      updates[plan.batch] += ended.step.held ? 0 : 1;
      if (ended.action == Action::hold) skipped.insert(plan.batch);
      ASSERT_TRUE(!ended.step.held || !plan.again) << "what comes again is not held again";
      ASSERT_LE(ended.recovered, run_->controller().max_recovered());
    }
    std::set<std::int64_t> waiting;
    const PlanState& plans = run_->controller().plan_state();
    for (const WaitingBatch& batch : plans.waiting) waiting.insert(batch.batch);
    for (const PlannedStep& step : plans.undecided) waiting.insert(step.batch);
    for (const auto& [batch, count] : updates) {
      ASSERT_EQ(count, skipped.contains(batch) || waiting.contains(batch) ? 0 : 1) << "seed " << seed << ", " << batch;
    }
  }
  EXPECT_GT(again, 300);
}

TEST_F(LateProperties, AHeldStepLeavesHistoriesAndErrorsAsTheyWere) {
  int held = 0;
  for (std::uint64_t seed = 500; seed < 540; ++seed) {
    Random random(seed);
    const std::vector<Unit> units = testing::random_units(random, 12);
    Options options = testing::random_late_options(random);
    options.selector = Selector::trial;
    options.max_trials = 100;
    options.max_high_share = 1;  // all that is held is held for a trial
    LateRun run(units, options, {.can_rerun = true, .sites = 2, .expected_errors = {0.02, 0.0}});
    RandomRun norms(random, units.size());
    RandomErrors errors(random, units.size(), 2);
    for (std::int64_t number = 1; number <= 200; ++number) {
      LateStep step{.plan = {}, .norms = norms.next(), .errors = errors.patrol()};
      run.run(step, number);
      const ControllerState before = run.controller().save();
      const Outcome& outcome = run.report(step);
      if (!step.held) continue;
      ++held;
      const Decision& decision = outcome.decision;
      ASSERT_TRUE(decision.admitted.empty() && decision.futile.empty() && !decision.common);
      const ControllerState after = run.controller().save();
      ASSERT_EQ(after.errors, before.errors);
      for (std::size_t unit = 0; unit < units.size(); ++unit) {
        ASSERT_EQ(after.units[unit].samples, before.units[unit].samples);
        ASSERT_EQ(after.units[unit].ratios, before.units[unit].ratios);
        ASSERT_LE(after.units[unit].steps_left, before.units[unit].steps_left);
      }
      ASSERT_EQ(after.decisions, before.decisions + 1);
    }
  }
  EXPECT_GT(held, 200);
}

/// Units with usual norms and errors that are known; all of them are measured.
class LateErrors : public ::testing::Test {
 protected:
  static constexpr std::size_t kUnits = 12;
  static constexpr std::size_t kSites = 2;

  explicit LateErrors() { options_.lag = 1; }

  void start() {
    run_.emplace(std::vector<Unit>(testing::random_units(random_, kUnits)), options_,
                 Backend{.can_rerun = true, .sites = kSites, .expected_errors = {0.02, 0.0}});
    for (int i = 0; i < 40; ++i) EXPECT_FALSE(take(norms_, errors_).held);
  }

  LateStep take(std::vector<std::optional<double>> norms, std::vector<double> errors) {
    LateStep step{.plan = {}, .norms = std::move(norms), .errors = std::move(errors)};
    run_->run(step, ++number_);
    if (last_) outcome_ = run_->report(*last_);
    last_ = step;
    return step;
  }

  Random random_{7};
  Options options_;
  std::optional<LateRun> run_;
  std::vector<std::optional<double>> norms_ = std::vector<std::optional<double>>(kUnits, 1.0);
  std::vector<double> errors_ = std::vector<double>(kUnits * kSites, 0.02);
  std::optional<LateStep> last_;
  Outcome outcome_;
  std::int64_t number_ = 0;
};

TEST_F(LateErrors, AnOutlierIsHeldInItsOwnStepAndItsTrialAdmits) {
  start();
  std::vector<double> bad = errors_;
  bad[3 * kSites + 1] = 0.9;
  const LateStep held = take(norms_, bad);
  EXPECT_TRUE(held.held);
  take(norms_, errors_);  // the step after it was planned before anybody knew
  EXPECT_EQ(outcome_.action, Action::rerun);
  EXPECT_TRUE(outcome_.alarmed && !outcome_.called);
  const LateStep trial = take(norms_, bad);
  EXPECT_EQ(trial.plan.pass, PassKind::trial);
  EXPECT_EQ(trial.plan.batch, held.plan.batch);
  take(norms_, errors_);
  EXPECT_EQ(outcome_.verdict, Verdict::numeric);
  EXPECT_EQ(std::vector<UnitIndex>(outcome_.decision.admitted.begin(), outcome_.decision.admitted.end()),
            std::vector<UnitIndex>{3});
}

TEST_F(LateErrors, AnInfiniteErrorIsHeldAndOneThatWasNotMeasuredIsNot) {
  start();
  std::vector<double> bad = errors_;
  bad[3 * kSites] = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(take(norms_, bad).held);
  bad[3 * kSites] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(take(norms_, bad).held) << "not measured";
}

TEST_F(LateErrors, ACompletePatrolDismissesRisksOfNormsButNotNonFiniteOnes) {
  start();
  std::vector<std::optional<double>> risen = norms_;
  risen[5] = 1000.0;
  EXPECT_FALSE(take(risen, errors_).held);
  take(norms_, errors_);
  EXPECT_TRUE(outcome_.dismissed && !outcome_.alarmed);
  EXPECT_TRUE(outcome_.decision.admitted.empty());
  std::vector<double> partial = errors_;
  partial[0] = partial[1] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(take(risen, partial).held) << "one unit was not measured";
  std::vector<std::optional<double>> broken = norms_;
  broken[5] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(take(broken, errors_).held);
}

TEST_F(LateErrors, TheGateHasTheLimitsOfThePlanAndWhatIsLearnedLaterCalls) {
  options_.error_warmup = 41;
  start();  // 39 errors have been learned, in the plan of the next step 38
  std::vector<double> bad = errors_;
  bad[3 * kSites + 1] = 0.9;  // a site without an expected error: it has no limit before its warm-up
  EXPECT_FALSE(take(norms_, errors_).held);
  EXPECT_FALSE(take(norms_, bad).held) << "the plan knows of 40 errors";
  EXPECT_FALSE(take(norms_, errors_).held);
  EXPECT_TRUE(outcome_.called) << "the report knows of 41";
  EXPECT_TRUE(take(norms_, bad).plan.pass == PassKind::trial);
}

TEST(ControllerLate, WhatNeedsTheHostBeforeTheUpdateIsRefused) {
  const auto refused = [](Selector selector, Guard guard, int lag) {
    Options options;
    options.selector = selector;
    options.guard = guard;
    options.lag = lag;
    try {
      check_options(options, {.can_rerun = true});
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

TEST(ControllerLate, BatchesThatWaitComeFirstInARunWithoutAGate) {
  Options options;
  options.lag = 0;
  Controller controller({{.name = "a"}}, options, {.can_rerun = true});
  EXPECT_EQ(controller.begin(7).batch, 7) << "without a past batch and step have one number";
  controller.restore(controller.save(),
                     {.next_batch = 12,
                      .waiting = {{.batch = 9, .pass = PassKind::trial}},
                      .called = true,
                      .undecided = {{.step = 12, .batch = 8, .pass = PassKind::trial, .again = true}}});
  EXPECT_EQ(controller.begin(12).batch, 8);
  EXPECT_EQ(controller.begin(13).batch, 9);
  EXPECT_EQ(controller.begin(14).batch, 12);
  EXPECT_EQ(controller.begin(15).batch, 13);
}

}  // namespace
}  // namespace gnmr
