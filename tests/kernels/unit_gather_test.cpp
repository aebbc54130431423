// SPDX-License-Identifier: Apache-2.0
#include "gnmr/kernels/unit_gather.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "gnmr/core/error.h"
#include "gnmr/kernels/unit_step.h"

namespace gnmr::kernels {
namespace {

TEST(UnitGather, AddsEachUnitsSums) {
  const UnitLists lists{.first = {0, 2, 2, 5}, .indices = {1, 0, 3, 2, 1}};
  const double sums[] = {1, 4};
  const double more[] = {16, 25};
  double norms[3];
  std::uint8_t sampled[3];
  reference_gather(lists, sums, 2, more, norms, sampled);
  EXPECT_EQ(norms[0], std::sqrt(5.0));
  EXPECT_EQ(norms[1], 0);
  EXPECT_EQ(norms[2], std::sqrt(45.0));
  EXPECT_EQ(sampled[0], 1);
  EXPECT_EQ(sampled[1], 0);
  EXPECT_EQ(sampled[2], 1);
}

TEST(UnitGather, JudgesEachSitesErrors) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();
  constexpr auto kMeasured = patrol_flag::kMeasured;
  constexpr auto kOutlier = static_cast<std::uint8_t>(patrol_flag::kMeasured | patrol_flag::kStandsOut);
  const float none = std::numeric_limits<float>::infinity();
  const auto judged = [](const std::vector<ErrorTotals>& totals, std::vector<float> limits, std::uint8_t wanted = 1) {
    // Two units of two sites; the first site of the second unit has two totals, its other site none.
    const UnitLists lists{.first = {0, 1, 2, 4, 4}, .indices = {0, 1, 2, 3}};
    limits.resize(4, std::numeric_limits<float>::infinity());
    std::vector<std::uint8_t> patrol(2, 0xee);
    reference_judge(lists, {.totals = totals.data(), .limits = limits.data(), .wanted = &wanted, .sites = 2},
                    patrol.data());
    return patrol;
  };
  using Flags = std::vector<std::uint8_t>;
  const ErrorTotals unmeasured{0, 0, 0};
  const ErrorTotals usual{4, 100, 1};  // 0.2
  EXPECT_EQ(judged({usual, unmeasured, unmeasured, unmeasured}, {0.25F}), (Flags{kMeasured, 0}));
  EXPECT_EQ(judged({usual, unmeasured, unmeasured, usual}, {0.1F, 1, 0.25F}), (Flags{kOutlier, kMeasured}));
  EXPECT_EQ(judged({unmeasured, usual, usual, {900, 100, 2}}, {0.1F, 1, 0.25F}), (Flags{kMeasured, kOutlier}));
  EXPECT_EQ(judged({usual, usual, usual, usual}, {0.1F, 0.1F, 0.1F}, 0), (Flags{0, 0}));
  // What is not finite, with any limit; 0 against 0; 0 where something should be.
  EXPECT_EQ(judged({{kInfinity, 5, 1}, unmeasured, {0, 0, 1}, unmeasured}, {none}), (Flags{kOutlier, kMeasured}));
  EXPECT_EQ(judged({{5, 0, 1}, unmeasured, {kNothing, 1, 1}, unmeasured}, {none}), (Flags{kOutlier, 0}));
  EXPECT_EQ(judged({{0.0625, 1, 1}, {0.0625, 1, 1}, unmeasured, unmeasured}, {0.25F, 0.25F}), (Flags{kMeasured, 0}));
  // The same one by one: what an error says of its unit.
  EXPECT_EQ(patrol_of_error(0.2, 0.25F), kMeasured);
  EXPECT_EQ(patrol_of_error(std::nextafter(0.25, 1.0), 0.25F), kOutlier);
  EXPECT_EQ(patrol_of_error(kInfinity, none), kOutlier);
  EXPECT_EQ(patrol_of_error(kNothing, 0), 0);
}

TEST(UnitGather, WantsLists) {
  EXPECT_NO_THROW(check_lists({.first = {0}, .indices = {}}));
  EXPECT_THROW(check_lists({}), Error);
  EXPECT_THROW(check_lists({.first = {0, 2}, .indices = {1}}), Error);
  EXPECT_THROW(check_lists({.first = {0, 2, 1, 3}, .indices = {1, 2, 3}}), Error);
}

}  // namespace
}  // namespace gnmr::kernels
