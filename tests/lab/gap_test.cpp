// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/gap.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace gnmr::lab {
namespace {

/// Student's distribution function, by Simpson's rule over its density: slow, and nothing of gap.cpp in it.
double student_probability(double limit, double freedom) {
  const double scale =
      std::exp(std::lgamma((freedom + 1) / 2) - std::lgamma(freedom / 2)) / std::sqrt(freedom * std::acos(-1.0));
  const auto density = [&](double t) { return scale * std::pow(1 + t * t / freedom, -(freedom + 1) / 2); };
  constexpr int kParts = 200000;
  const double width = limit / kParts;
  double sum = density(0) + density(limit);
  for (int part = 1; part < kParts; ++part) sum += (part % 2 == 1 ? 4 : 2) * density(part * width);
  return 0.5 + sum * width / 3;
}

TEST(Gap, QuantilesAreThoseOfStudentsDistribution) {
  for (const std::size_t freedom : {1U, 2U, 3U, 4U, 7U, 12U, 29U, 30U, 31U, 60U, 400U}) {
    EXPECT_NEAR(student_probability(student_quantile(freedom), static_cast<double>(freedom)), 0.975, 1e-7) << freedom;
  }
}

TEST(Gap, AnEstimateIsMeanSpreadAndInterval) {
  const Estimate three = estimate(std::vector{1.0, 2.0, 6.0});
  EXPECT_EQ(three.count, 3U);
  EXPECT_DOUBLE_EQ(three.mean, 3);
  EXPECT_DOUBLE_EQ(*three.spread, std::sqrt(7.0));
  EXPECT_NEAR(*three.half_width, 4.302652730 * std::sqrt(7.0 / 3), 1e-9);
  EXPECT_TRUE(three.interval_has_zero());
  const Estimate one = estimate(std::vector{4.0});
  EXPECT_DOUBLE_EQ(one.mean, 4);
  EXPECT_FALSE(one.spread.has_value());
  EXPECT_FALSE(one.interval_has_zero());
  EXPECT_EQ(estimate({}).count, 0U);
}

TEST(Gap, SharesArePairedBySeed) {
  // The seeds differ a lot, the gaps do not: pairing finds what means alone would not.
  const GapClosed gap = gap_closed(std::vector<SeedLosses>{{1.0, 1.2, 1.1}, {2.0, 2.2, 2.05}, {3.0, 3.2, 3.1}});
  ASSERT_TRUE(gap.has_gap());
  EXPECT_NEAR(gap.gap.mean, 0.2, 1e-12);
  EXPECT_NEAR(gap.closed.value, (0.5 + 0.75 + 0.5) / 3, 1e-12);
  // All gaps are alike: Student's interval of the gains over the gap.
  const double half_width = 4.302652730 * 0.25 / std::sqrt(3.0) / std::sqrt(3.0);
  EXPECT_NEAR(*gap.closed.low, gap.closed.value - half_width, 1e-6);
  EXPECT_NEAR(*gap.closed.high, gap.closed.value + half_width, 1e-6);
}

TEST(Gap, ASmallGapDoesNotDecide) {
  // Of the second seed alone 120% is closed: a mean of ratios would say 94%.
  const GapClosed gap = gap_closed(std::vector<SeedLosses>{{1.0, 2.0, 1.5}, {1.0, 1.5, 0.9}, {1.0, 1.9, 0.9}});
  EXPECT_NEAR(gap.closed.value, (0.5 + 0.6 + 1.0) / (1.0 + 0.5 + 0.9), 1e-12);
}

TEST(Gap, AtTheEndsOfAFiellerIntervalTheDifferenceTouchesNought) {
  const std::vector<double> parts{0.11, 0.14, 0.05, 0.16, 0.12};
  const std::vector<double> wholes{0.20, 0.22, 0.11, 0.19, 0.15};
  const Ratio ratio = ratio_of_means(parts, wholes);
  ASSERT_TRUE(ratio.low && ratio.high);
  EXPECT_EQ(ratio.count, 5U);
  EXPECT_LT(*ratio.low, ratio.value);
  EXPECT_GT(*ratio.high, ratio.value);
  for (const double end : {*ratio.low, *ratio.high}) {
    std::vector<double> differences;
    for (std::size_t pair = 0; pair < parts.size(); ++pair) differences.push_back(parts[pair] - end * wholes[pair]);
    const Estimate difference = estimate(differences);
    EXPECT_NEAR(std::abs(difference.mean), *difference.half_width, 1e-12);
  }
}

TEST(Gap, NoiseIsNoGap) {
  EXPECT_FALSE(gap_closed(std::vector<SeedLosses>{{1.0, 1.1, 1.0}, {1.0, 0.95, 1.0}, {1.0, 1.0, 1.0}}).has_gap());
  EXPECT_FALSE(gap_closed(std::vector<SeedLosses>{{1.0, 0.9, 0.8}, {1.0, 0.9, 0.8}, {1.0, 0.9, 0.8}}).has_gap());
  EXPECT_FALSE(gap_closed(std::vector<SeedLosses>{{1.0, 1.0, 1.0}}).has_gap());
}

TEST(Gap, OneSeedHasNoInterval) {
  const GapClosed gap = gap_closed(std::vector<SeedLosses>{{1.0, 1.5, 1.1}});
  ASSERT_TRUE(gap.has_gap());
  EXPECT_NEAR(gap.closed.value, 0.8, 1e-12);
  EXPECT_FALSE(gap.closed.low.has_value());
}

TEST(Gap, AnArmMayCloseMoreThanAllOrLessThanNothing) {
  EXPECT_NEAR(gap_closed(std::vector<SeedLosses>{{1.0, 2.0, 0.5}}).closed.value, 1.5, 1e-12);
  EXPECT_NEAR(gap_closed(std::vector<SeedLosses>{{1.0, 2.0, 2.5}}).closed.value, -0.5, 1e-12);
}

}  // namespace
}  // namespace gnmr::lab
