// SPDX-License-Identifier: Apache-2.0
#include "gnmr/run/random_units.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "gnmr/core/error.h"
#include "gnmr/run/random_stream.h"

namespace gnmr::run {
namespace {

TEST(RandomStream, IsSplitMix) {
  RandomStream stream(RandomPurpose::data_order, {3});
  RandomStream same(RandomPurpose::data_order, {3});
  RandomStream other(RandomPurpose::data_offset, {3});
  const std::uint64_t first = stream.next();
  EXPECT_EQ(first, same.next());
  EXPECT_NE(first, other.next());
  EXPECT_NE(RandomStream(RandomPurpose::faults, {1, 2}).next(), RandomStream(RandomPurpose::faults, {2, 1}).next());
}

TEST(RandomStream, BelowIsUniform) {
  RandomStream stream(RandomPurpose::faults, {1});
  std::vector<int> counts(7);
  for (int i = 0; i < 70000; ++i) ++counts[stream.below(7)];
  for (const int count : counts) EXPECT_NEAR(count, 10000, 5 * std::sqrt(10000));
  for (int i = 0; i < 100; ++i) EXPECT_EQ(stream.below(1), 0U);
  double sum = 0;
  for (int i = 0; i < 10000; ++i) sum += stream.unit();
  EXPECT_NEAR(sum / 10000, 0.5, 0.02);
}

TEST(RandomUnits, MeanUseIsTheShare) {
  const RandomUnits settings{.units = 28, .share = 0.05, .lock_steps = 10, .seed = 4};
  constexpr std::int64_t kSteps = 40000;
  std::vector<std::int64_t> used(settings.units);
  for (std::int64_t step = 1; step <= kSteps; ++step) {
    const std::vector<UnitIndex> units = units_in_recovery(settings, step);
    EXPECT_LE(units.size(), 2U);
    EXPECT_TRUE(std::is_sorted(units.begin(), units.end()));
    EXPECT_EQ(std::set<UnitIndex>(units.begin(), units.end()).size(), units.size());
    for (const UnitIndex unit : units) ++used.at(unit);
  }
  double total = 0;
  for (const std::int64_t count : used) {
    total += static_cast<double>(count);
    // 4000 choices, each with probability 0.05: five standard deviations.
    EXPECT_NEAR(static_cast<double>(count) / 10, 200, 5 * std::sqrt(4000 * 0.05 * 0.95));
  }
  EXPECT_NEAR(total / (28.0 * kSteps), 0.05, 0.001);
}

TEST(RandomUnits, AChoiceLastsLockStepsAndNeedsNoMemory) {
  const RandomUnits settings{.units = 50, .share = 0.2, .lock_steps = 7, .seed = 1};
  for (std::int64_t window = 0; window < 20; ++window) {
    const std::vector<UnitIndex> chosen = units_in_recovery(settings, window * 7 + 1);
    EXPECT_EQ(chosen.size(), 10U);
    for (std::int64_t step = window * 7 + 7; step > window * 7; --step) {
      EXPECT_EQ(units_in_recovery(settings, step), chosen);
    }
    EXPECT_NE(units_in_recovery(settings, window * 7 + 8), chosen);
  }
  RandomUnits other = settings;
  other.seed = 2;
  EXPECT_NE(units_in_recovery(other, 1), units_in_recovery(settings, 1));
}

TEST(RandomUnits, Ends) {
  EXPECT_EQ(units_in_recovery({.units = 3, .share = 1, .lock_steps = 2}, 1).size(), 3U);
  EXPECT_TRUE(units_in_recovery({.units = 0, .share = 0.5, .lock_steps = 2}, 1).empty());
  EXPECT_THROW(units_in_recovery({.units = 3, .share = std::nan(""), .lock_steps = 2}, 1), Error);
  EXPECT_THROW(units_in_recovery({.units = 3, .share = 0.5, .lock_steps = 2}, 0), Error);
}

}  // namespace
}  // namespace gnmr::run
