// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/rivals/olmo_skip.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "lab/rivals/memory_checks.h"
#include "lab/rivals/random_norms.h"

namespace gnmr::lab {
namespace {

constexpr double kOlmoNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kOlmoInfinity = std::numeric_limits<double>::infinity();

/// Whether the last of all values is within sigma deviations of those before it, without means in the variance.
bool is_usual_slowly(const std::vector<double>& values, std::size_t window, double sigma) {
  if (values.size() < window / 2) return true;
  const std::size_t last = values.size() - 1;
  const std::size_t first = last > window ? last - window : 0;
  const auto count = static_cast<double>(last - first);
  double mean = 0;
  double pairs = 0;
  for (std::size_t i = first; i < last; ++i) {
    mean += values[i] / count;
    for (std::size_t j = first; j < i; ++j) pairs += std::pow(values[i] - values[j], 2);
  }
  return values[last] <= mean + sigma * std::sqrt(pairs / (count * (count - 1)));
}

TEST(OlmoSkip, HasThePublishedDefaults) {
  EXPECT_EQ(OlmoSkipOptions().window, 128);
  EXPECT_EQ(OlmoSkipOptions().sigma, 6);
}

TEST(OlmoSkip, SkipsAsWorkedOutByHand) {
  OlmoSkip rule({.window = 6});
  EXPECT_TRUE(rule.observe(1, 3));
  EXPECT_TRUE(rule.observe(2, 3));
  // Losses 1 and 2: mean 1.5, deviation sqrt(0.5); six of them above is 5.7426. The norm is never unusual.
  OlmoSkip above = rule;
  EXPECT_TRUE(rule.observe(5.74, 3));
  EXPECT_FALSE(above.observe(5.75, 3));
  // What was left out counts from then on: losses 1, 2, 5.75 have the mean 2.9167 and the deviation 2.5042.
  OlmoSkip later = above;
  EXPECT_TRUE(above.observe(17.93, 3));
  EXPECT_FALSE(later.observe(17.95, 3));
}

TEST(OlmoSkip, AsksBothLossAndNormAndOnlyWhatIsAbove) {
  OlmoSkip rule({.window = 6});
  rule.observe(1, 1);
  rule.observe(2, 2);
  for (const auto& [loss, norm, is_made] : {std::tuple(1.5, 5.75, false), std::tuple(5.75, 1.5, false),
                                            std::tuple(5.7, 5.7, true), std::tuple(-100.0, 0.0, true)}) {
    OlmoSkip copy = rule;
    EXPECT_EQ(copy.observe(loss, norm), is_made) << loss << ' ' << norm;
  }
}

TEST(OlmoSkip, AsksFromHalfAWindowOn) {
  // With 128 the step that is asked first is the 64th, with 63 before it.
  for (const int steps_before : {62, 63}) {
    OlmoSkip rule({});
    for (int step = 0; step < steps_before; ++step) rule.observe(3 + 0.01 * (step % 5), 1);
    EXPECT_EQ(rule.observe(1000, 1), steps_before == 62);
  }
}

TEST(OlmoSkip, ForgetsWhatIsOlderThanItsWindow) {
  OlmoSkip rule({.window = 8});
  rule.observe(1000, 1);
  // While 1000 is among the last eight, their deviation lets 20 pass; then it does not.
  for (int step = 0; step < 7; ++step) rule.observe(step % 2, 1);
  OlmoSkip with_it = rule;
  EXPECT_TRUE(with_it.observe(20, 1));
  rule.observe(1, 1);
  EXPECT_FALSE(rule.observe(20, 1));
}

TEST(OlmoSkip, EqualsTheSlowReference) {
  for (const OlmoSkipOptions& options : {OlmoSkipOptions{}, OlmoSkipOptions{.window = 21, .sigma = 2.5}}) {
    OlmoSkip rule(options);
    RandomNorms random(17);
    std::vector<double> losses;
    std::vector<double> norms;
    int skipped = 0;
    for (int step = 0; step < 500; ++step) {
      losses.push_back(5 / (1 + 0.01 * step) + random.share());
      norms.push_back(random.norm());
      const auto window = static_cast<std::size_t>(options.window);
      const bool expected =
          is_usual_slowly(losses, window, options.sigma) && is_usual_slowly(norms, window, options.sigma);
      ASSERT_EQ(rule.observe(losses.back(), norms.back()), expected) << step;
      skipped += expected ? 0 : 1;
    }
    EXPECT_GT(skipped, 1);
    EXPECT_LT(skipped, 100);
  }
}

TEST(OlmoSkip, ValuesThatDoNotChangeAreNeverSkippedAndASpikeIs) {
  OlmoSkip rule({});
  for (int step = 0; step < 1000; ++step) ASSERT_TRUE(rule.observe(0.1, 0.7));
  EXPECT_FALSE(rule.observe(0.1, 0.8));
}

TEST(OlmoSkip, WhatIsNotFiniteIsLeftOutAndForgotten) {
  OlmoSkip rule({.window = 6});
  for (int step = 0; step < 10; ++step) {
    const std::string before = rule.save();
    for (const double value : {kOlmoNan, kOlmoInfinity, -kOlmoInfinity}) {
      EXPECT_FALSE(rule.observe(value, 1));
      EXPECT_FALSE(rule.observe(1, value));
    }
    ASSERT_EQ(rule.save(), before) << step;
    EXPECT_TRUE(rule.observe(3 - 0.1 * step, 1));
  }
}

TEST(OlmoSkip, GoesOnBitForBitFromItsMemory) {
  for (const int steps_before : {0, 40, 300}) {
    RandomNorms random(5);
    OlmoSkip rule({});
    for (int step = 0; step < steps_before; ++step) rule.observe(random.share(), random.norm());
    OlmoSkip resumed({});
    resumed.restore(rule.save());
    for (int step = 0; step < 150; ++step) {
      const double loss = random.share();
      const double norm = random.norm();
      ASSERT_EQ(rule.observe(loss, norm), resumed.observe(loss, norm));
      ASSERT_EQ(rule.save(), resumed.save());
    }
  }
}

TEST(OlmoSkip, MemoryThatIsNotItsOwnIsRefused) {
  OlmoSkip rule({});
  for (int step = 0; step < 7; ++step) rule.observe(1, 1);
  expect_foreign_memory_is_refused(rule);
}

}  // namespace
}  // namespace gnmr::lab
