// SPDX-License-Identifier: Apache-2.0
// The check of a plan: which runs it wants, and what it makes of their losses.
#include "gnmr/lab/plan_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "gnmr/lab/setting_texts.h"
#include "io/temporary_folder.h"

namespace gnmr::lab {
namespace {

HighPlan plan_of_two() {
  HighPlan plan;
  plan.units = {{.name = "a", .chosen = true}, {.name = "b"}, {.name = "c", .chosen = true}, {.name = "d"}};
  plan.chosen = 2;
  plan.cost_share = 0.4;
  plan.removed_share = 0.75;
  return plan;
}

Comparison comparison_of(const std::vector<std::vector<double>>& losses_by_arm) {
  Comparison comparison{.arms = check_arms(plan_of_two(), {}), .seeds = losses_by_arm[0].size()};
  for (const std::vector<double>& losses : losses_by_arm) {
    std::vector<CellResult> cells;
    for (std::size_t seed = 0; seed < losses.size(); ++seed) {
      cells.push_back({.seed = static_cast<std::int64_t>(seed), .loss = losses[seed], .high = {.mean = 0.5}});
    }
    comparison.cells.push_back(cells);
  }
  return comparison;
}

TEST(PlanCheckTest, ArmsAreTheRunWithOtherUnitsHigh) {
  run::TrainSettings settings;
  settings.recipe = "int4-act";
  settings.steps = 37;
  settings.seed = 5;
  settings.lr = 0.01;
  settings.patrol = 1;
  settings.out = "elsewhere";
  settings.always_high = {"*.o"};
  settings.controller = "gnmr";
  settings.experiment.faults = {"saturate"};
  const test::TemporaryFolder folder;
  const Suite suite = Suite::open({.folder = folder.file("check"),
                                   .title = "t",
                                   .seeds = {5},
                                   .arms = check_arms(plan_of_two(), settings),
                                   .texts = check_texts(settings)});
  ASSERT_EQ(suite.arms().size(), 3U);
  for (const SuiteArm& arm : suite.arms()) {
    EXPECT_EQ(arm.settings.steps, 37);
    EXPECT_EQ(arm.settings.lr, 0.01);
    EXPECT_EQ(arm.settings.controller, "watch");
    EXPECT_EQ(arm.settings.patrol, 0);
  }
  const auto& [high, low, plan] =
      std::tie(suite.arms()[0].settings, suite.arms()[1].settings, suite.arms()[2].settings);
  EXPECT_EQ(high.recipe, "none");
  EXPECT_TRUE(high.experiment.faults.empty());
  EXPECT_EQ(low.recipe, "int4-act");
  EXPECT_EQ(low.experiment.faults, run::Texts{"saturate"});
  EXPECT_EQ(low.always_high, run::Texts{"*.o"});
  EXPECT_EQ(plan.always_high, (run::Texts{"*.o", "a", "c"}));
  EXPECT_EQ(changed_settings(low, plan), (std::vector<std::string>{"always_high", "label"}));
}

TEST(PlanCheckTest, LossesArePairedBySeed) {
  const PlanCheck check = check_plan(comparison_of({{1.0, 2.0, 3.0}, {1.2, 2.2, 3.25}, {1.1, 2.05, 3.1}}));
  EXPECT_EQ(check.seeds, 3U);
  EXPECT_NEAR(check.gap.mean, 0.65 / 3, 1e-12);
  EXPECT_NEAR(check.above_high.mean, 0.25 / 3, 1e-12);
  // Differences 0.1, 0.05, 0.1: the quantile of two degrees of freedom times s / sqrt(3).
  EXPECT_NEAR(*check.above_high.half_width, 4.302652730 * std::sqrt(0.0025 / 3) / std::sqrt(3.0), 1e-6);
  EXPECT_NEAR(check.closed.value, 0.4 / 0.65, 1e-12);
  EXPECT_NEAR(check.units_high, 0.5, 1e-12);
}

TEST(PlanCheckTest, ASeedCountsOnlyIfAllItsRunsEndedWithANumber) {
  const double inf = std::numeric_limits<double>::infinity();
  const PlanCheck one = check_plan(comparison_of({{1.0, 2.0}, {1.4, inf}, {1.1, 2.1}}));
  EXPECT_EQ(one.seeds, 1U);
  EXPECT_NEAR(one.closed.value, 0.75, 1e-12);
  EXPECT_FALSE(one.above_high.half_width);
  const PlanCheck none = check_plan(comparison_of({{1.0}, {inf}, {1.1}}));
  EXPECT_EQ(none.seeds, 0U);
  EXPECT_NE(check_text(plan_of_two(), none).find("No seed"), std::string::npos);
}

TEST(PlanCheckTest, PredictionStandsBesideWhatWasMeasured) {
  const HighPlan plan = plan_of_two();
  EXPECT_NEAR(plan.unit_share(), 0.5, 1e-12);
  const PlanCheck check = check_plan(comparison_of({{1.0, 2.0, 3.0}, {1.2, 2.2, 3.2}, {1.1, 2.05, 3.1}}));
  const std::string text = check_text(plan, check);
  EXPECT_NE(text.find("75%         58% [22, 94]"), std::string::npos) << text;
  EXPECT_NE(text.find("+0.0500     +0.0833 ["), std::string::npos) << text;
  EXPECT_NE(text.find("40.0%"), std::string::npos) << text;
  const nlohmann::json json = nlohmann::json::parse(check_json(plan, check));
  EXPECT_EQ(json["seeds"], 3);
  EXPECT_NEAR(json["predicted_closed"].get<double>(), 0.75, 1e-12);
  EXPECT_NEAR(json["closed"]["ratio"].get<double>(), 1.75 / 3, 1e-12);
  EXPECT_LT(json["above_high"]["low"].get<double>(), json["above_high"]["mean"].get<double>());
  EXPECT_EQ(nlohmann::json::parse(plan_json(plan, {}, check_json(plan, check)))["check"], json);
  EXPECT_FALSE(nlohmann::json::parse(plan_json(plan, {})).contains("check"));
}

TEST(PlanCheckTest, WithoutAGapNothingIsClosed) {
  const PlanCheck check = check_plan(comparison_of({{1.0, 2.0}, {1.1, 1.9}, {1.0, 2.0}}));
  EXPECT_EQ(check.closed.count, 0U);
  EXPECT_NE(check_text(plan_of_two(), check).find("no gap above its noise"), std::string::npos);
  EXPECT_FALSE(nlohmann::json::parse(check_json(plan_of_two(), check)).contains("closed"));
}

}  // namespace
}  // namespace gnmr::lab
