// SPDX-License-Identifier: Apache-2.0
#include "gnmr/report/curve.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>

namespace gnmr::report {
namespace {

Curve ramp(std::size_t count) {
  Curve curve;
  for (std::size_t i = 1; i <= count; ++i) curve.add(static_cast<double>(i), static_cast<double>(i));
  return curve;
}

TEST(Curve, TellsBadStepsApart) {
  Curve curve;
  curve.add(1, 2.0);
  curve.add(2, std::nullopt);
  curve.add(3, std::numeric_limits<double>::infinity());
  curve.add(4, std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(curve.steps, std::vector<double>{1});
  EXPECT_EQ(curve.bad_steps, (std::vector<double>{3, 4}));
}

TEST(Curve, ThinningKeepsSpikesAndOrder) {
  Curve curve = ramp(100000);
  curve.values[70001] = 1e9;
  curve.values[30001] = -1e9;
  const Curve thin = thin_by_extremes(curve, 1000);
  EXPECT_LE(thin.steps.size(), 1000U);
  EXPECT_GE(thin.steps.size(), 900U);
  EXPECT_TRUE(std::is_sorted(thin.steps.begin(), thin.steps.end()));
  EXPECT_EQ(*std::max_element(thin.values.begin(), thin.values.end()), 1e9);
  EXPECT_EQ(*std::min_element(thin.values.begin(), thin.values.end()), -1e9);
  EXPECT_EQ(thin_by_extremes(ramp(10), 1000).steps, ramp(10).steps);
  EXPECT_TRUE(thin_by_extremes(Curve{}, 1000).empty());
}

TEST(Curve, MeansOfStretches) {
  const Curve thin = thin_by_means(ramp(100), 1, 100, 10);
  ASSERT_EQ(thin.values.size(), 10U);
  EXPECT_DOUBLE_EQ(thin.values[0], 5.5);
  EXPECT_DOUBLE_EQ(thin.steps[0], 5.5);
  EXPECT_DOUBLE_EQ(thin.values[9], 95.5);
  EXPECT_EQ(thin_by_means(ramp(5), 1, 100, 10).values.size(), 1U);
}

TEST(Curve, MeanOverSeedsWhereAllHaveAValue) {
  Curve longer = ramp(4);
  for (double& value : longer.values) value += 2;
  const std::array<Curve, 3> curves{ramp(3), longer, Curve{}};
  const Curve mean = mean_curve(curves);
  EXPECT_EQ(mean.steps, (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(mean.values, (std::vector<double>{2, 3, 4}));
}

TEST(Curve, CeilingLeavesDivergenceOutside) {
  Curve usual;
  usual.add(1, 5.0);
  usual.add(2, 2.0);
  Curve diverged = usual;
  diverged.add(3, 5000.0);
  EXPECT_DOUBLE_EQ(*loss_ceiling(std::array{usual}), 5.0);
  EXPECT_DOUBLE_EQ(*loss_ceiling(std::array{usual, diverged}), 5.75);
  EXPECT_FALSE(loss_ceiling(std::array{Curve{}}).has_value());
}

}  // namespace
}  // namespace gnmr::report
