// SPDX-License-Identifier: Apache-2.0
// Standing recovery of the controller: plans, states, modes. The decisions themselves are compared with the naive
// implementation (controller_trials_test.cpp, controller_late_test.cpp) and with golden traces.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/random_errors.h"
#include "core/random_run.h"
#include "core/run_step.h"
#include "gnmr/core/controller.h"
#include "gnmr/core/error.h"
#include "gnmr/core/error_levels.h"

namespace gnmr {
namespace {

using testing::Random;
using testing::run_step;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr std::size_t kUnits = 6;

std::vector<UnitIndex> list(std::span<const UnitIndex> units) { return {units.begin(), units.end()}; }

std::vector<Unit> six_units() {
  return {{.name = "a"}, {.name = "b"}, {.name = "c"}, {.name = "d"}, {.name = "e"}, {.name = "f"}};
}

/// Calm norms, and errors of one site in which some units are always far above the others.
class Standing : public ::testing::Test {
 protected:
  static Options options(double max_o = 2) {
    Options options;
    options.max_o = max_o;
    return options;
  }
  static Backend backend() { return {.can_rerun = true, .sites = 1}; }

  /// Runs the steps up to this one; the errors of low paths are the same in each, of units in recovery only where the
  /// plan asks for them.
  void run_to(Controller& controller, std::int64_t last) {
    const std::vector<double> norms(kUnits, 1.0);
    for (; step_ <= last; ++step_) {
      const StepPlan& plan = controller.begin(step_);
      measured_ = list(plan.measure);
      std::vector<double> errors = errors_;
      for (const UnitIndex unit : plan.recovered) errors[unit] = kNan;
      for (const UnitIndex unit : plan.measure) errors[unit] = errors_[unit];
      const Outcome& outcome = controller.report({.step = step_, .norms = norms, .errors = errors});
      standing_ = list(outcome.decision.standing);
      new_ = list(outcome.decision.newly_standing);
      admitted_ = list(outcome.decision.admitted);
      released_ = list(outcome.decision.released);
    }
  }

  std::int64_t step_ = 1;
  std::vector<double> errors_{0.05, 0.05, 0.06, 0.4, 0.05, 0.5};
  std::vector<UnitIndex> measured_, standing_, new_, admitted_, released_;
};

TEST_F(Standing, UnitsFarAboveOthersStandFromTheSecondReviewOn) {
  Controller controller(six_units(), options(), backend());
  run_to(controller, 20);
  EXPECT_TRUE(standing_.empty()) << "a review uses the errors before it: 19";
  EXPECT_TRUE(std::isnan(controller.usual_error(3, 0)) || controller.usual_error(3, 0) > 0.3);
  run_to(controller, 40);
  EXPECT_EQ(standing_, (std::vector<UnitIndex>{3, 5}));
  EXPECT_EQ(new_, standing_);
  EXPECT_TRUE(admitted_.empty());
  EXPECT_NEAR(controller.usual_error(5, 0), 0.5, 1e-12);
  EXPECT_EQ(controller.steps_left(3), 20U);
  EXPECT_EQ(list(controller.recovered()), standing_);
  run_to(controller, 41);
  EXPECT_EQ(controller.steps_left(3), 19U);
  EXPECT_TRUE(new_.empty());
  run_to(controller, 1000);
  EXPECT_EQ(standing_, (std::vector<UnitIndex>{3, 5})) << "one measurement in twenty steps confirms it";
}

TEST_F(Standing, ThePlanNamesUnitsInRecoveryInTheirTurn) {
  Controller controller(six_units(), options(), backend());
  run_to(controller, 54);
  EXPECT_TRUE(measured_.empty());
  run_to(controller, 55);
  EXPECT_EQ(measured_, std::vector<UnitIndex>{5}) << "55 + 5 is a multiple of 20";
  run_to(controller, 57);
  EXPECT_EQ(measured_, std::vector<UnitIndex>{3});
}

TEST_F(Standing, ItEndsWhenErrorsBecomeUsualAndWithoutMeasurements) {
  Controller controller(six_units(), options(), backend());
  run_to(controller, 60);
  errors_[3] = 0.05;  // measured every twenty steps: its level falls slowly
  errors_[5] = kNan;
  run_to(controller, 240);
  EXPECT_EQ(standing_.size(), 2U);
  run_to(controller, 260);
  EXPECT_EQ(standing_, std::vector<UnitIndex>{3}) << "no error of unit 5 for 200 decisions";
  run_to(controller, 800);
  EXPECT_TRUE(standing_.empty());
  EXPECT_EQ(controller.save().units[3].was_released, false) << "no relapse can follow";
}

TEST_F(Standing, NothingStandsWithTheOptionAtZeroOrInThePresetPaper) {
  for (Options off : {options(), Options::preset("paper")}) {
    off.coarse_error = 0;
    step_ = 1;
    Controller controller(six_units(), off, backend());
    run_to(controller, 100);
    EXPECT_TRUE(standing_.empty() && measured_.empty());
    EXPECT_TRUE(controller.save().levels.empty());
  }
  EXPECT_EQ(Options::preset("paper").coarse_error, 0);
}

TEST_F(Standing, WatchingDecidesAndRunsNothingHigh) {
  Controller controller(six_units(), options(), backend());
  controller.set_mode(Mode::watch);
  run_to(controller, 60);
  EXPECT_EQ(standing_, (std::vector<UnitIndex>{3, 5}));
  EXPECT_TRUE(controller.begin(61).recovered.empty());
}

TEST_F(Standing, AStateGoesOnWithTheSameDecisions) {
  for (const std::int64_t at : {25, 47, 120}) {
    step_ = 1;
    Controller first(six_units(), options(), backend());
    run_to(first, at);
    const ControllerState state = first.save();
    Controller second(six_units(), options(), backend());
    EXPECT_TRUE(second.restore(state).exact());
    EXPECT_EQ(second.save(), state);
    const std::int64_t next = step_;
    run_to(first, at + 90);
    step_ = next;
    run_to(second, at + 90);
    EXPECT_EQ(second.save(), first.save());
  }
}

TEST_F(Standing, ASmallerBudgetEndsTheLowestKeysAndTheOptionAtZeroAll) {
  Controller first(six_units(), options(), backend());
  run_to(first, 60);
  Controller smaller(six_units(), options(1), backend());
  EXPECT_EQ(smaller.restore(first.save()).released_units, std::vector<std::string>{"d"});
  Options off = options();
  off.coarse_error = 0;
  Controller without(six_units(), off, backend());
  EXPECT_EQ(without.restore(first.save()).released_units, (std::vector<std::string>{"d", "f"}));
  EXPECT_TRUE(without.recovered().empty());
}

/// Beside the coarse unit 5, unit 2 has large errors, unit 4 larger ones; both are less than twice the median.
class Filling : public Standing {
 protected:
  Filling() { errors_ = {0.15, 0.15, 0.24, 0.15, 0.27, 0.7}; }

  static Options options(double max_o) {
    Options options = Standing::options(max_o);
    options.selector = Selector::norms;
    return options;
  }
};

TEST_F(Filling, WhatCoarseUnitsLeaveGoesToTheLargestErrors) {
  const auto standing_with = [this](double max_o, double fill) {
    step_ = 1;
    Options given = options(max_o);
    given.coarse_fill = fill;
    Controller controller(six_units(), given, backend());
    run_to(controller, 400);
    return standing_;
  };
  EXPECT_EQ(standing_with(1, 0.2), (std::vector<UnitIndex>{5}));
  EXPECT_EQ(standing_with(2, 0.2), (std::vector<UnitIndex>{4, 5}));
  EXPECT_EQ(standing_with(5, 0.2), (std::vector<UnitIndex>{2, 4, 5})) << "0.15 is not large";
  EXPECT_EQ(standing_with(5, 0.25), (std::vector<UnitIndex>{4, 5}));
  EXPECT_EQ(standing_with(5, 0), (std::vector<UnitIndex>{5}));
  errors_ = {0.45, 0.45, 0.5, 0.6, 0.55, 0.7};
  EXPECT_TRUE(standing_with(5, 0.2).empty()) << "errors are alike, however large";
}

TEST_F(Filling, TheyGiveTheirPlaceToCoarseUnitsAtOnce) {
  Controller controller(six_units(), options(2), backend());
  run_to(controller, 40);
  EXPECT_EQ(standing_, (std::vector<UnitIndex>{4, 5}));
  errors_[0] = 1.5;
  run_to(controller, 80);
  EXPECT_EQ(standing_, (std::vector<UnitIndex>{0, 5})) << "although unit 4 has not stood for a hundred decisions";
}

TEST_F(Filling, TheyStayAtThreeQuartersAndEndWithTheLastCoarseUnit) {
  Controller controller(six_units(), options(5), backend());
  run_to(controller, 40);
  EXPECT_EQ(standing_, (std::vector<UnitIndex>{2, 4, 5}));
  errors_[2] = 0.16;  // above 0.15, below 0.2
  run_to(controller, 1200);
  EXPECT_EQ(standing_, (std::vector<UnitIndex>{2, 4, 5}));
  errors_[5] = 0.17;
  run_to(controller, 2400);
  EXPECT_TRUE(standing_.empty());
}

TEST_F(Filling, StatesKeepThemAndSmallerBudgetsEndThemFirst) {
  Controller first(six_units(), options(4), backend());
  run_to(first, 60);
  const ControllerState state = first.save();
  EXPECT_EQ(state.units[4].admitted_for, RiskKind::fill);
  EXPECT_EQ(state.units[5].admitted_for, RiskKind::coarse);
  Controller same(six_units(), options(4), backend());
  EXPECT_TRUE(same.restore(state).exact());
  EXPECT_EQ(same.save(), state);
  Controller smaller(six_units(), options(2), backend());
  EXPECT_EQ(smaller.restore(state).released_units, std::vector<std::string>{"c"});
  Options without = options(4);
  without.coarse_fill = 0;
  Controller empty(six_units(), without, backend());
  EXPECT_EQ(empty.restore(state).released_units, (std::vector<std::string>{"c", "e"}));
}

TEST_F(Standing, AStateThatNoControllerWroteIsRefused) {
  Controller first(six_units(), options(), backend());
  run_to(first, 60);
  const auto refused = [&](auto spoil) {
    ControllerState state = first.save();
    spoil(state);
    Controller other(six_units(), options(), backend());
    EXPECT_THROW(other.restore(state), Error);
  };
  refused([](ControllerState& s) { s.levels.pop_back(); });
  refused([](ControllerState& s) { s.levels[0].age = 0; });
  refused([](ControllerState& s) { s.levels[0].age = 201; });
  refused([](ControllerState& s) { s.levels[0].sum = 30; });
  refused([](ControllerState& s) { s.levels[0].samples = 0; });
  refused([](ControllerState& s) { s.units[3].standing_key = 0; });
  refused([](ControllerState& s) { s.units[3].standing_key = kNan; });
  refused([](ControllerState& s) { s.units[3].steps_left = 3; });
}

TEST(StandingPlans, PlansThatNoControllerWroteAreRefused) {
  Controller controller(six_units(), {}, {.can_rerun = true, .sites = 1});
  const ControllerState state = controller.save();
  const auto refused = [&](const PlanState& plan) { EXPECT_THROW(controller.restore(state, plan), Error); };
  refused({.recovered = {6}});
  refused({.recovered = {2, 2}});
  refused({.flags = {0, 1}});
  refused({.undecided = {{.step = 1}, {.step = 2}, {.step = 3}}});
  refused({.undecided = {{.step = 1}, {.step = 3}}});
  EXPECT_NO_THROW(controller.restore(state, {}));
}

TEST(StandingPlans, NamesStayWhereTheyAreWhenAStateIsTakenOver) {
  Controller controller(six_units(), {}, {.can_rerun = true, .sites = 1});
  const char* const before = controller.units()[4].name.c_str();
  controller.restore(controller.save());
  EXPECT_EQ(controller.units()[4].name.c_str(), before);
}

TEST(LinearLog, IsExactAtPowersOfTwoMonotonicAndHasItsInverse) {
  EXPECT_EQ(linear_log2(0x1p-20), -20);
  EXPECT_EQ(linear_log2(16), 4);
  EXPECT_EQ(linear_log2(3), 1.5);
  EXPECT_EQ(linear_exp2(1.5), 3);
  Random random(1);
  double before = 0;
  for (int i = 0; i < 2000; ++i) {
    const double x = std::exp(random.uniform(-13, 2));
    EXPECT_NEAR(linear_log2(x), std::log2(x), 0.0861);
    EXPECT_NEAR(linear_exp2(linear_log2(x)) / x, 1, 1e-14);
    EXPECT_TRUE(before == 0 || (linear_log2(x) > linear_log2(before)) == (x > before));
    before = x;
  }
}

}  // namespace
}  // namespace gnmr
