// SPDX-License-Identifier: Apache-2.0
#include "gnmr/kernels/unit_gather.h"

#include <gtest/gtest.h>

#include <cmath>

#include "gnmr/core/error.h"

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

TEST(UnitGather, WantsLists) {
  EXPECT_NO_THROW(check_lists({.first = {0}, .indices = {}}));
  EXPECT_THROW(check_lists({}), Error);
  EXPECT_THROW(check_lists({.first = {0, 2}, .indices = {1}}), Error);
  EXPECT_THROW(check_lists({.first = {0, 2, 1, 3}, .indices = {1, 2, 3}}), Error);
}

}  // namespace
}  // namespace gnmr::kernels
