// SPDX-License-Identifier: Apache-2.0
// Saving and restoring: the same decisions afterwards, bit for bit; changed options, units and limits; bad states.
#include "gnmr/core/state.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "core/random_run.h"
#include "core/run_step.h"
#include "gnmr/core/error.h"

namespace gnmr {
namespace {

using testing::NormArrays;
using testing::norms_controller;
using testing::Random;
using testing::RandomRun;
using testing::run_step;

std::vector<UnitIndex> copy(std::span<const UnitIndex> units) { return {units.begin(), units.end()}; }

TEST(State, ResumedAtAnyStepAllLaterDecisionsAreTheSame) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Random random(seed);
    const std::vector<Unit> units = testing::random_units(random, 23);
    Options options = testing::random_options(random);
    options.max_cost = 1;
    Controller whole = norms_controller(units, options);
    Controller resumed = norms_controller(units, options);
    RandomRun run(random, units.size());
    for (int step = 0; step < 200; ++step) {
      // A new controller takes over in every step: it has nothing but the state.
      Controller fresh = norms_controller(units, options);
      ASSERT_TRUE(fresh.restore(resumed.save(), resumed.plan_state()).exact());
      ASSERT_EQ(fresh.save(), resumed.save()) << "seed " << seed << ", step " << step;
      resumed = std::move(fresh);
      const NormArrays arrays(run.next());
      const StepReport report{.step = step, .norms = arrays.norms, .sampled = arrays.sampled};
      const Decision& a = run_step(whole, report).decision;
      const Decision& b = run_step(resumed, report).decision;
      ASSERT_EQ(copy(a.admitted), copy(b.admitted)) << "seed " << seed << ", step " << step;
      ASSERT_EQ(copy(a.recovered), copy(b.recovered));
      ASSERT_EQ(copy(a.denied), copy(b.denied));
      ASSERT_EQ(copy(a.futile), copy(b.futile));
      ASSERT_EQ(whole.save(), resumed.save()) << "seed " << seed << ", step " << step;
    }
  }
}

class StateChange : public ::testing::Test {
 protected:
  StateChange() : controller_(norms_controller(units_, options_)) {
    std::vector<double> norms(6, 1.0);
    Random random(1);
    for (int step = 0; step < 60; ++step) {
      for (double& norm : norms) norm = std::exp(0.1 * random.normal());
      run_step(controller_, {.step = step, .norms = norms});
    }
    norms.assign(6, 1.0);
    norms[1] = 9;  // locked first: fewest steps left
    run_step(controller_, {.step = 60, .norms = norms});
    norms[1] = 1;
    norms[3] = norms[4] = 9;
    run_step(controller_, {.step = 61, .norms = norms});
    EXPECT_GT(controller_.steps_left(1), 0u);
    EXPECT_GT(controller_.steps_left(3), 0u);
    EXPECT_GT(controller_.steps_left(4), 0u);
  }

  static Options make_options() {
    Options options;
    options.max_o = 3;
    return options;
  }

  const std::vector<Unit> units_{
      {.name = "a"}, {.name = "b", .cost = 5}, {.name = "c"}, {.name = "d", .group = "g"}, {.name = "e", .group = "g"},
      {.name = "f"}};
  const Options options_ = make_options();
  Controller controller_;
};

TEST_F(StateChange, ASmallerBudgetReleasesFewestStepsLeftFirstThenHighestIndex) {
  Options smaller = options_;
  smaller.max_o = 1;
  Controller other = norms_controller(units_, smaller);
  const RestoreReport report = other.restore(controller_.save());
  EXPECT_EQ(report.released_units, (std::vector<std::string>{"b", "e"}));
  EXPECT_GT(other.steps_left(3), 0u);
  EXPECT_EQ(other.steps_left(4), 0u);
}

TEST_F(StateChange, AGroupLimitReleasesOnlyInThatGroup) {
  Options grouped = options_;
  grouped.group_max = 1;
  Controller other = norms_controller(units_, grouped);
  EXPECT_EQ(other.restore(controller_.save()).released_units, (std::vector<std::string>{"e"}));
  EXPECT_GT(other.steps_left(1), 0u);
}

TEST_F(StateChange, ACostLimitReleasesUntilItIsMet) {
  Options cheap = options_;
  cheap.max_cost = 0.5;  // 5 of 10
  Controller other = norms_controller(units_, cheap);
  EXPECT_EQ(other.restore(controller_.save()).released_units, (std::vector<std::string>{"b"}));
}

TEST_F(StateChange, AForcedUnitLeavesRecovery) {
  std::vector<Unit> forced = units_;
  forced[3].forced = true;
  Controller other = norms_controller(forced, options_);
  EXPECT_EQ(other.restore(controller_.save()).released_units, (std::vector<std::string>{"d"}));
}

TEST_F(StateChange, ForcedUnitsMayCostAnything) {
  std::vector<Unit> forced = units_;
  for (const std::size_t unit : {1U, 3U}) {
    forced[unit].forced = true;
    forced[unit].cost = std::numeric_limits<std::int64_t>::max();
  }
  Controller other = norms_controller(forced, options_);
  EXPECT_EQ(other.restore(controller_.save()).released_units, (std::vector<std::string>{"b", "d"}));
  EXPECT_EQ(run_step(other, {.step = 100, .norms = std::vector<double>(6, 1.0)}).decision.recovered_cost, 1);
}

// Norms near the largest double may round a mean to infinity: such a state is a controller's own.
TEST(State, AnInfiniteMeanIsTakenOver) {
  Controller controller = norms_controller({{.name = "a"}});
  const std::vector<double> norms{std::numeric_limits<double>::max()};
  for (int step = 0; step < 80; ++step) run_step(controller, {.step = step, .norms = norms});
  Controller other = norms_controller({{.name = "a"}});
  EXPECT_NO_THROW(other.restore(controller.save()));
  EXPECT_EQ(other.save(), controller.save());
}

TEST_F(StateChange, HistoriesGoByName) {
  const std::vector<Unit> moved{{.name = "new"}, {.name = "c"}, {.name = "a"}};
  Controller other = norms_controller(moved, options_);
  const RestoreReport report = other.restore(controller_.save());
  EXPECT_EQ(report.new_units, (std::vector<std::string>{"new"}));
  EXPECT_EQ(report.unknown_units, (std::vector<std::string>{"b", "d", "e", "f"}));
  const ControllerState before = controller_.save();
  const ControllerState after = other.save();
  EXPECT_EQ(after.units[1].mean_sum, before.units[2].mean_sum);
  EXPECT_EQ(after.units[2].ratios, before.units[0].ratios);
  EXPECT_EQ(after.units[0].samples, 0u);
}

TEST_F(StateChange, AChangedBetaStartsTheMeansAfreshAndKeepsTheUsualChange) {
  Options changed = options_;
  changed.beta = 0.5;
  Controller other = norms_controller(units_, changed);
  EXPECT_TRUE(other.restore(controller_.save()).beta_changed);
  const UnitState unit = other.save().units[0];
  EXPECT_EQ(unit.samples, 0u);
  EXPECT_EQ(unit.mean_sum, 0.0);
  EXPECT_EQ(unit.ratios, std::vector<double>(5, 1.0));
  EXPECT_EQ(unit.rise_change_sum, controller_.save().units[0].rise_change_sum);
}

TEST_F(StateChange, AChangedNoiseBetaStartsTheUsualChangeAfresh) {
  Options changed = options_;
  changed.noise_beta = 0.5;
  Controller other = norms_controller(units_, changed);
  EXPECT_TRUE(other.restore(controller_.save()).noise_beta_changed);
  const UnitState unit = other.save().units[0];
  EXPECT_EQ(unit.changes, 0u);
  EXPECT_EQ(unit.rise_change_sum, 0.0);
  EXPECT_EQ(unit.samples, controller_.save().units[0].samples);
}

TEST_F(StateChange, AWindowCutsToTheNewestAndIsFilledWithTheOldest) {
  const std::vector<double> kept = controller_.save().units[0].ratios;
  ASSERT_EQ(kept.size(), 5u);
  Options narrow = options_;
  narrow.window = 2;
  Controller other = norms_controller(units_, narrow);
  EXPECT_TRUE(other.restore(controller_.save()).window_changed);
  EXPECT_EQ(other.save().units[0].ratios, (std::vector<double>{kept[3], kept[4]}));
  Options wide = options_;
  wide.window = 7;
  Controller wider = norms_controller(units_, wide);
  wider.restore(controller_.save());
  EXPECT_EQ(wider.save().units[0].ratios,
            (std::vector<double>{kept[0], kept[0], kept[0], kept[1], kept[2], kept[3], kept[4]}));
}

TEST_F(StateChange, AStateThatNoControllerWroteIsRefusedAndNothingChanges) {
  const ControllerState good = controller_.save();
  const std::vector<std::function<void(ControllerState&)>> spoils{
      [](ControllerState& s) { s.units[1].name = "a"; },
      [](ControllerState& s) { s.units[1].name.clear(); },
      [](ControllerState& s) { s.units[1].mean_sum = std::numeric_limits<double>::quiet_NaN(); },
      [](ControllerState& s) { s.units[1].mean_sum = -1; },
      [](ControllerState& s) { s.units[1].fall_change_sum = std::numeric_limits<double>::infinity(); },
      [](ControllerState& s) { s.units[1].ratios[0] = 1e31; },
      [](ControllerState& s) { s.units[1].ratios.pop_back(); },
      [](ControllerState& s) { s.units[1].ratios.resize(6, 1.0), s.units[1].inverses.resize(6, 1.0); },
      [](ControllerState& s) { s.units[1].steps_left = 0; },
      [](ControllerState& s) { s.units[1].steps_left = 1000; },
      [](ControllerState& s) { s.units[1].admitted_for = RiskKind::none; },
      [](ControllerState& s) { s.units[1].admitted_for = static_cast<RiskKind>(9); },
      [](ControllerState& s) { s.units[1].samples = 0; },
      [](ControllerState& s) { s.options.beta = 1.5; },
      [](ControllerState& s) { s.decisions = std::numeric_limits<std::uint64_t>::max(); },
      [](ControllerState& s) { s.units[1].steps_in_recovery = std::numeric_limits<std::uint32_t>::max(); },
  };
  for (std::size_t i = 0; i < spoils.size(); ++i) {
    ControllerState bad = good;
    spoils[i](bad);
    EXPECT_THROW(controller_.restore(bad), Error) << "spoil " << i;
    EXPECT_EQ(controller_.save(), good) << "spoil " << i;
  }
}

}  // namespace
}  // namespace gnmr
