// SPDX-License-Identifier: Apache-2.0
// The plan of units that should always run high, from a state that a controller wrote.
#include "gnmr/lab/high_plan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gnmr/core/controller.h"
#include "gnmr/core/error.h"

namespace gnmr::lab {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::vector<Unit> units_of(std::size_t count) {
  std::vector<Unit> units;
  for (std::size_t i = 0; i < count; ++i) units.push_back({.name = "u" + std::to_string(i), .cost = i == 2 ? 3 : 1});
  return units;
}

/// A state after sixty decisions with the same errors, two sites per unit.
ControllerState state_with(const std::vector<Unit>& units, const std::vector<double>& errors, const Options& options) {
  Controller controller(units, options, {.can_rerun = false, .sites = 2});
  const std::vector<double> norms(units.size(), 1.0);
  for (int step = 1; step <= 60; ++step) {
    controller.begin(step);
    controller.report({.step = step, .norms = norms, .errors = errors});
  }
  return controller.save();
}

class HighPlanTest : public ::testing::Test {
 protected:
  HighPlanTest() { options_.coarse_fill = 0; }

  HighPlan plan(double max_o) {
    options_.max_o = max_o;
    return plan_high_units(units_, state_with(units_, errors_, options_), options_);
  }

  Options options_;
  std::vector<Unit> units_ = units_of(7);
  // Unit 2 is coarse at site 1, unit 4 at site 0; unit 6 is not measured.
  std::vector<double> errors_{0.1, 0.2, 0.1, 0.2, 0.1, 0.8, 0.1, 0.2, 0.4, 0.2, 0.1, 0.25, kNan, kNan};
};

TEST_F(HighPlanTest, CoarseUnitsAreChosenByKeyWithinTheBudget) {
  const HighPlan both = plan(3);
  EXPECT_EQ(plan_flags(both), "--always-high u2 u4");
  EXPECT_EQ(both.coarse, 2U);
  EXPECT_EQ(both.unmeasured, 1U);
  EXPECT_NEAR(both.medians[0], 0.1, 1e-12);
  EXPECT_NEAR(both.medians[1], 0.2, 1e-12);
  EXPECT_NEAR(both.units[2].above, 4, 1e-9);
  EXPECT_NEAR(both.cost_share, 4.0 / 9, 1e-12);
  const double all = (0.64 - 0.04) + (0.16 - 0.01) + (0.0625 - 0.04);
  EXPECT_NEAR(both.removed_share, (all - 0.0225) / all, 1e-9);
  // Equal keys; where cost is limited 16 over a cost of 3 is less than 16 over 1.
  EXPECT_EQ(plan_flags(plan(1)), "--always-high u2");
  options_.max_cost = 0.99;
  const HighPlan one = plan(1);
  EXPECT_EQ(plan_flags(one), "--always-high u4");
  EXPECT_EQ(one.coarse, 2U);
}

TEST_F(HighPlanTest, IsWhatStandingRecoveryComesTo) {
  for (const double fill : {0.0, 0.2}) {
    options_.max_o = 3;
    options_.coarse_fill = fill;
    Controller controller(units_, options_, {.can_rerun = false, .sites = 2});
    const std::vector<double> norms(units_.size(), 1.0);
    for (int step = 1; step <= 60; ++step) {
      controller.begin(step);
      controller.report({.step = step, .norms = norms, .errors = errors_});
    }
    std::string flags = "--always-high";
    for (const UnitIndex unit : controller.recovered()) flags += " " + units_[unit].name;
    EXPECT_EQ(controller.recovered().size(), fill > 0 ? 3U : 2U);
    EXPECT_EQ(plan_flags(plan(3)), flags);
  }
}

TEST_F(HighPlanTest, SpareBudgetIsFilledByTheMostSquaredErrorAboveTheMedians) {
  // Beside the coarse units 2 and 4: unit 5 exceeds a median by more than unit 3, unit 1 is below coarse_fill.
  options_.coarse_fill = 0.2;
  errors_ = {0.1, 0.2, 0.1, 0.19, 0.1, 0.8, 0.1, 0.22, 0.4, 0.2, 0.1, 0.25, kNan, kNan};
  const auto filled = [&](double max_o) {
    options_.max_o = max_o;
    return plan_high_units(units_, state_with(units_, errors_, options_), options_);
  };
  EXPECT_EQ(plan_flags(filled(2)), "--always-high u2 u4");
  EXPECT_EQ(plan_flags(filled(3)), "--always-high u2 u4 u5");
  const HighPlan all = filled(6);
  EXPECT_EQ(plan_flags(all), "--always-high u2 u3 u4 u5");
  EXPECT_EQ(all.fills, 2U);
  EXPECT_EQ(all.chosen, 4U);
  EXPECT_NEAR(all.removed_share, 1, 1e-12);
  EXPECT_NE(plan_table(all, {"a", "b"}).find("high (fills)"), std::string::npos);
  EXPECT_EQ(plan_table(all, {"a", "b"}).find("more would be high"), std::string::npos);
  units_[5].forced = true;
  EXPECT_EQ(plan_flags(filled(6)), "--always-high u2 u3 u4");
  // Errors that are alike are no reason, however large.
  errors_.assign(14, 0.6);
  EXPECT_EQ(plan_flags(filled(6)), "");
}

TEST_F(HighPlanTest, AUnitThatTheUserSetIsNeverChosen) {
  units_[4].forced = true;
  EXPECT_EQ(plan_flags(plan(3)), "--always-high u2");
}

TEST_F(HighPlanTest, NothingIsChosenWhereErrorsAreAlike) {
  errors_.assign(14, 0.3);
  const HighPlan none = plan(3);
  EXPECT_EQ(plan_flags(none), "");
  EXPECT_NE(plan_table(none, {"a", "b"}).find("no fixed set of units pays"), std::string::npos);
}

TEST_F(HighPlanTest, TableJsonAndFilterSayTheSame) {
  options_.max_cost = 0.99;
  const HighPlan made = plan(1);
  const std::string table = plan_table(made, {"forward", "wgrad"});
  EXPECT_NE(table.find("1 unit of 7 high (the budget allows 1), 11.1% of the multiply-adds."), std::string::npos)
      << table;
  EXPECT_NE(table.find("1 unit more would be high"), std::string::npos) << table;
  EXPECT_NE(table.find("1 unit has not been measured"), std::string::npos) << table;
  const nlohmann::json json = nlohmann::json::parse(plan_json(made, {"forward", "wgrad"}));
  EXPECT_EQ(json["high"], nlohmann::json({"u4"}));
  EXPECT_NEAR(json["units"][4]["errors"]["forward"].get<double>(), 0.4, 1e-9);
  EXPECT_TRUE(json["units"][6]["errors"]["wgrad"].is_null());
  EXPECT_EQ(json["unmeasured"], 1);
  const std::string filter = plan_filter(made);
  EXPECT_NE(filter.find("    \"u4\",\n"), std::string::npos);
  EXPECT_NE(filter.find("return fqn not in HIGH"), std::string::npos);
}

TEST_F(HighPlanTest, WhatCannotBePlannedIsAnError) {
  ControllerState state = state_with(units_, errors_, options_);
  Options off = options_;
  off.coarse_error = 0;
  EXPECT_THROW(plan_high_units(units_, state, off), Error);
  state.levels.clear();
  EXPECT_THROW(plan_high_units(units_, state, options_), Error);
}

}  // namespace
}  // namespace gnmr::lab
