// SPDX-License-Identifier: Apache-2.0
// Scenes of docs/algorithm.md, "Recovery that hits the right unit", with numbers that can be followed by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/run_step.h"
#include "gnmr/core/error.h"

namespace gnmr {
namespace {

using testing::clone;
using testing::run_step;
using testing::wants_trial;

using Units = std::vector<UnitIndex>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::size_t kUnits = 12;

Units copy(std::span<const UnitIndex> units) { return {units.begin(), units.end()}; }

Units units_of(std::span<const Finding> findings) {
  Units units;
  for (const Finding& finding : findings) units.push_back(finding.unit);
  return units;
}

std::string message_of(const auto& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// Twelve units in health for 30 steps; their errors are 0.02, which is what the format makes of them.
class TrialScene : public ::testing::Test {
 protected:
  Controller make(Selector selector, Guard guard = Guard::none, bool can_rerun = true) {
    Options options = options_;
    options.selector = selector;
    options.guard = guard;
    std::vector<Unit> units = units_;
    for (std::size_t i = units.size(); i < kUnits; ++i) units.push_back({.name = "u" + std::to_string(i)});
    Controller controller(units, options, {.can_rerun = can_rerun, .sites = 1, .expected_errors = {0.02}});
    for (; step_ < 30; ++step_) take(controller, calm_, usual_);
    return controller;
  }

  static std::vector<double> with(std::vector<double> numbers, UnitIndex unit, double value) {
    numbers[unit] = value;
    return numbers;
  }

  /// Begins the step, or its rerun, and reports it.
  const Outcome& take(Controller& controller, const std::vector<double>& norms,
                      const std::vector<double>& errors = {}) {
    return run_step(controller, {.step = step_, .norms = norms, .errors = errors});
  }

  static Options make_options() {
    Options options;
    options.max_o = 3;
    options.error_floor = 0.01;
    return options;
  }

  Options options_ = make_options();
  std::vector<Unit> units_;
  int step_ = 0;
  const std::vector<double> calm_ = std::vector<double>(kUnits, 1.0);
  const std::vector<double> usual_ = std::vector<double>(kUnits, 0.02);
};

TEST_F(TrialScene, ATrialPicksTheUnitWhoseLowPathIsWrongNotTheOneWhoseNormRose) {
  Controller controller = make(Selector::automatic);
  EXPECT_EQ(controller.selector(), Selector::trial);
  const Outcome first = take(controller, with(calm_, 3, 9));  // the neighbour's
  EXPECT_TRUE(wants_trial(first));
  EXPECT_TRUE(first.alarmed);
  EXPECT_FALSE(first.decided_step.has_value());
  const Outcome& outcome = take(controller, calm_, with(usual_, 4, 0.5));
  EXPECT_EQ(outcome.verdict, Verdict::numeric);
  EXPECT_EQ(copy(outcome.decision.admitted), (Units{4}));
  ASSERT_EQ(outcome.findings.size(), 1u);
  EXPECT_EQ(outcome.findings[0].error, 0.5);
  EXPECT_DOUBLE_EQ(outcome.findings[0].excess, 0.5 / 0.08);  // four times the usual
  EXPECT_DOUBLE_EQ(controller.error_limit(4, 0), 0.08);
  const ControllerState state = controller.save();
  EXPECT_EQ(state.units[4].admitted_for, RiskKind::error);
  EXPECT_EQ(state.errors[4].samples, 30u) << "an error above its limit is not learned";
  EXPECT_EQ(state.errors[3].samples, 31u);
  EXPECT_EQ(controller.signals(3).ratio, 1.0) << "the alarmed norms have left no trace";
  EXPECT_EQ(state.reruns_ago, (std::vector<std::uint32_t>{0}));
}

TEST_F(TrialScene, TheSameInHighPrecisionIsCommonAndWhatIsNotSeenAgainIsGone) {
  Controller controller = make(Selector::trial);
  take(controller, with(calm_, 3, 9));
  const Outcome& common = take(controller, with(calm_, 3, 9), usual_);
  EXPECT_EQ(common.verdict, Verdict::common);
  EXPECT_TRUE(common.decision.common && common.decision.admitted.empty() && common.decision.denied.empty());
  ++step_;
  take(controller, with(calm_, 3, kNan));
  const Outcome& unlocated = take(controller, calm_, usual_);
  EXPECT_EQ(unlocated.verdict, Verdict::unlocated);
  EXPECT_FALSE(unlocated.decision.common);
}

TEST_F(TrialScene, ACompletePatrolDismissesAnAlarmOfFiniteNormsOnly) {
  Controller controller = make(Selector::trial);
  const Outcome& dismissed = take(controller, with(calm_, 3, 9), usual_);
  EXPECT_TRUE(dismissed.dismissed && !dismissed.alarmed);
  EXPECT_EQ(dismissed.action, Action::apply);
  EXPECT_TRUE(dismissed.decision.admitted.empty());
  ++step_;
  Controller non_finite = clone(controller);
  EXPECT_TRUE(wants_trial(take(non_finite, with(calm_, 3, kInfinity), usual_)));
  Controller incomplete = clone(controller);
  EXPECT_TRUE(wants_trial(take(incomplete, with(calm_, 3, 9), with(usual_, 7, kNan)))) << "one was not measured";
  const Outcome& by_error = take(controller, calm_, with(with(usual_, 3, kNan), 5, 0.2));
  EXPECT_TRUE(wants_trial(by_error)) << "no norm is at risk";
  EXPECT_EQ(units_of(by_error.findings), (Units{5}));
}

TEST_F(TrialScene, SpentStepsAreDecidedByErrorsAndByNormsWhereThereAreNone) {
  options_.max_trials = 0;
  Controller controller = make(Selector::trial);
  const Outcome& outcome = take(controller, with(calm_, 3, 9), with(std::vector<double>(kUnits, kNan), 8, 0.2));
  EXPECT_TRUE(outcome.spent && outcome.alarmed);
  EXPECT_EQ(copy(outcome.decision.admitted), (Units{8}));
  ++step_;
  EXPECT_EQ(copy(take(controller, with(calm_, 3, 9)).decision.admitted), (Units{3}));
}

TEST_F(TrialScene, EvidenceAloneAndEvidenceAfterAnAlarm) {
  Controller alone = make(Selector::evidence);
  EXPECT_EQ(copy(take(alone, calm_, with(usual_, 8, 0.2)).decision.admitted), (Units{8}));
  step_ = 0;
  Controller after = make(Selector::evidence_after_alarm);
  EXPECT_TRUE(take(after, calm_, with(usual_, 8, 0.2)).decision.admitted.empty());
  ++step_;
  EXPECT_EQ(copy(take(after, with(calm_, 3, 9), with(usual_, 8, 0.2)).decision.admitted), (Units{8}));
}

TEST_F(TrialScene, ErrorsOverruleCommonNorms) {
  Controller controller = make(Selector::evidence);
  const Outcome& outcome = take(controller, std::vector<double>(kUnits, 9.0), with(usual_, 8, 0.2));
  EXPECT_TRUE(outcome.alarm.common);
  EXPECT_EQ(copy(outcome.decision.admitted), (Units{8}));
  EXPECT_FALSE(outcome.decision.common);
}

TEST_F(TrialScene, AForcedUnitIsFoundAndRaisesNoAlarm) {
  units_ = {{.name = "forced", .forced = true}};
  Controller controller = make(Selector::trial);
  Controller patrolled = clone(controller);
  const Outcome& outcome = take(patrolled, calm_, with(usual_, 0, 0.9));
  EXPECT_EQ(units_of(outcome.findings), (Units{0}));
  EXPECT_FALSE(outcome.alarmed);
  take(controller, with(calm_, 3, 9));
  const Outcome& after = take(controller, calm_, with(usual_, 0, 0.9));
  EXPECT_EQ(after.verdict, Verdict::numeric);
  EXPECT_TRUE(after.decision.admitted.empty() && after.decision.denied.empty());
}

TEST_F(TrialScene, TheGuardClipsWhoAsks) {
  Controller controller = make(Selector::norms, Guard::clip);
  const double mean = controller.mean_norm(3);
  const Outcome& clipped = take(controller, with(with(calm_, 3, 8), 5, kNan));
  ASSERT_EQ(clipped.clip.size(), kUnits);
  EXPECT_EQ(clipped.action, Action::apply);
  EXPECT_EQ(clipped.clip[3], mean / 8);
  EXPECT_NEAR(clipped.clip[3], 1.0 / 8, 1e-12);
  EXPECT_EQ(clipped.clip[5], 0);
  EXPECT_EQ(std::count(clipped.clip.begin(), clipped.clip.end(), 1.0), 10);
  ++step_;
  Controller calm = clone(controller);
  EXPECT_TRUE(take(calm, calm_).clip.empty());
  EXPECT_TRUE(take(controller, std::vector<double>(kUnits, 9.0)).clip.empty()) << "a common step has no candidates";
}

TEST_F(TrialScene, TheGuardSkipsOrReplays) {
  Controller skip = make(Selector::norms, Guard::skip);
  EXPECT_EQ(take(skip, calm_).action, Action::apply);
  ++step_;
  EXPECT_EQ(take(skip, with(calm_, 3, 9)).action, Action::hold);
  step_ = 0;
  options_.max_o = 1;
  options_.max_trials = 1;
  Controller replay = make(Selector::norms, Guard::replay);
  const Outcome& outcome = take(replay, with(calm_, 3, 9));
  EXPECT_EQ(outcome.action, Action::rerun);
  EXPECT_EQ(outcome.rerun, PassKind::replay);
  EXPECT_EQ(outcome.decided_step, step_) << "its first run has decided";
  EXPECT_EQ(copy(outcome.decision.recovered), (Units{3}));
  EXPECT_EQ(replay.reruns_left(), 0u);
  EXPECT_EQ(take(replay, calm_).action, Action::apply);
  ++step_;
  const Outcome& spent = take(replay, with(calm_, 4, 9));
  EXPECT_TRUE(spent.spent);
  EXPECT_EQ(spent.action, Action::apply);
}

TEST_F(TrialScene, AReplayNeedsSomebodyAdmitted) {
  options_.max_o = 0;
  Controller controller = make(Selector::norms, Guard::replay);
  EXPECT_EQ(take(controller, with(calm_, 3, 9)).action, Action::apply);
  EXPECT_EQ(controller.reruns_left(), 20u);
}

TEST_F(TrialScene, AReplayForAUnitThatRanHighWouldChangeNothing) {
  options_.max_o = 1;
  options_.lock_steps = 1;
  options_.cooldown_steps = 0;
  Controller controller = make(Selector::norms, Guard::replay);
  EXPECT_EQ(take(controller, with(calm_, 3, kNan)).rerun, PassKind::replay);
  take(controller, calm_);
  ++step_;
  const Outcome& outcome = take(controller, with(with(calm_, 3, kNan), 5, 9));  // for unit 5
  EXPECT_EQ(copy(outcome.decision.released), (Units{3}));
  EXPECT_EQ(copy(outcome.decision.admitted), (Units{3}));
  EXPECT_EQ(copy(outcome.decision.denied), (Units{5}));
  EXPECT_EQ(outcome.action, Action::apply);
  EXPECT_EQ(controller.reruns_left(), 19u);
}

TEST_F(TrialScene, LimitsAreThoseOfTheErrorsThatWereReportedLast) {
  Controller controller = make(Selector::evidence);
  take(controller, calm_, with(usual_, 3, kNan));
  EXPECT_DOUBLE_EQ(controller.error_limit(4, 0), 0.08);
  EXPECT_TRUE(std::isnan(controller.error_limit(3, 0)));
  ++step_;
  run_step(controller, {.step = step_, .done = Completion::dropped});
  EXPECT_TRUE(std::isnan(controller.error_limit(4, 0)));
  ++step_;
  take(controller, calm_);
  EXPECT_TRUE(std::isnan(controller.error_limit(4, 0)));
}

TEST_F(TrialScene, BeforeItsOwnHistoryAUnitIsJudgedByItsNeighboursInATrialOnly) {
  options_.error_ceiling = 0;
  step_ = 30;
  Controller controller = make(Selector::trial);  // no errors so far
  Controller patrolled = clone(controller);
  EXPECT_FALSE(take(patrolled, calm_, with(usual_, 8, 0.2)).alarmed);
  EXPECT_EQ(patrolled.error_limit(8, 0), kInfinity);
  EXPECT_TRUE(wants_trial(take(controller, with(calm_, 3, kNan), with(usual_, 8, 0.2))));
  const Outcome& outcome = take(controller, calm_, with(usual_, 8, 0.2));
  EXPECT_EQ(units_of(outcome.findings), (Units{8}));
  EXPECT_DOUBLE_EQ(controller.error_limit(8, 0), 0.08);
}

TEST_F(TrialScene, AnErrorAdmissionIsNeverFutileAndRelapses) {
  Controller controller = make(Selector::evidence);
  take(controller, calm_, with(usual_, 8, 0.2));
  for (int left = options_.lock_steps; left > 0; --left) {
    ++step_;
    const Outcome& outcome = take(controller, with(calm_, 8, 9), with(usual_, 8, 0.2));  // its norm is bad too
    EXPECT_TRUE(outcome.decision.futile.empty());
    EXPECT_TRUE(outcome.findings.empty()) << "it is in recovery";
    EXPECT_EQ(copy(outcome.decision.released), left == 1 ? Units{8} : Units{});
  }
  ++step_;
  EXPECT_EQ(copy(take(controller, calm_, with(usual_, 8, 0.2)).decision.admitted), (Units{8}));
  EXPECT_EQ(controller.steps_left(8), 2u * static_cast<std::uint32_t>(options_.lock_steps));
}

TEST_F(TrialScene, OnlyFreeUnitsAreAdmittedTheMostSevereFirst) {
  options_.max_o = 2;
  units_ = {{.name = "a"}, {.name = "forced", .forced = true}};
  Controller controller = make(Selector::evidence);
  EXPECT_EQ(copy(take(controller, calm_, with(with(usual_, 0, 0.2), 1, 0.9)).decision.admitted), (Units{0}));
  ++step_;
  const Outcome& second = take(controller, calm_, with(with(with(usual_, 0, 0.9), 2, 0.2), 3, 0.3));
  EXPECT_EQ(copy(second.decision.admitted), (Units{3}));
  EXPECT_EQ(copy(second.decision.denied), (Units{2}));
}

TEST_F(TrialScene, FailedCallsSayWhatWasExpected) {
  Controller controller = make(Selector::trial);
  EXPECT_EQ(message_of([&] { controller.report({.step = 30, .norms = calm_}); }),
            "[step 30] expected begin() before report()");
  controller.begin(30);
  EXPECT_EQ(message_of([&] { controller.report({.step = 31, .norms = calm_}); }),
            "[step 31] expected the report of step 30");
  EXPECT_EQ(message_of([&] { controller.report({.step = 30, .norms = calm_, .errors = std::vector<double>(5)}); }),
            "[step 30] expected 1 errors for each of 12 units or none, got 5");
  EXPECT_EQ(message_of([&] { take(controller, calm_, with(usual_, 7, -1)); }),
            "[step 30] expected errors that are not negative, got -1 for site 0 of unit `u7`");
  EXPECT_NE(message_of([&] { controller.report({.step = 30, .done = Completion::rerun_failed}); }), "")
      << "no trial was asked for";
  EXPECT_TRUE(wants_trial(take(controller, with(calm_, 3, 9))));
  EXPECT_EQ(message_of([&] { controller.begin(31); }),
            "[step 31] expected the rerun of step 30, or its report as failed, first");
}

TEST(Backends, WhatMakesNoSenseIsRefused) {
  const std::vector<Unit> units{{.name = "a"}};
  Options options;
  EXPECT_THROW(Controller(units, options, {.sites = 17}), Error);
  EXPECT_THROW(Controller(units, options, {.sites = 2, .expected_errors = {0.1}}), Error);
  EXPECT_THROW(Controller(units, options, {.sites = 1, .expected_errors = {-0.1}}), Error);
  EXPECT_THROW(Controller(units, options, {.sites = 1, .expected_errors = {kInfinity}}), Error);
  EXPECT_EQ(Controller(units, options).selector(), Selector::norms);
  EXPECT_EQ(Controller(units, options, {.can_rerun = true, .sites = 0}).selector(), Selector::norms);
  options.selector = Selector::trial;
  EXPECT_NE(message_of([&] { Controller(units, options, {}); }).find("`selector`"), std::string::npos);
  options.selector = Selector::norms;
  options.guard = Guard::replay;
  EXPECT_NE(message_of([&] { Controller(units, options, {}); }).find("`guard`"), std::string::npos);
  EXPECT_NE(message_of([&] { check_options(options, {}); }).find("`guard`"), std::string::npos);
  EXPECT_NO_THROW(Controller(units, options, {.can_rerun = true}));
}

}  // namespace
}  // namespace gnmr
