// SPDX-License-Identifier: Apache-2.0
#include "gnmr/recipes/fp8_rule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace gnmr::recipes {
namespace {

using formats::Format;

enum class Groups { tensor, given, row, tile, block };

TEST(Fp8Rule, TheFp8RecipesHaveCodes) {
  std::vector<std::string> with_codes;
  for (const std::string& name : recipe_names()) {
    if (has_fp8_codes(load_recipe(name))) with_codes.push_back(name);
  }
  std::sort(with_codes.begin(), with_codes.end());
  EXPECT_EQ(with_codes, (std::vector<std::string>{"fp8-deepseek", "fp8-delayed", "fp8-rowwise", "fp8-tensorwise"}));
  EXPECT_FALSE(has_fp8_codes(Recipe{}));
}

TEST(Fp8Rule, EverythingElseIsEmulated) {
  EXPECT_TRUE(has_fp8_codes(CastRule{}));
  EXPECT_TRUE(has_fp8_codes(CastRule{.format = Format::e5m2, .grouping = Grouping::delayed}));
  EXPECT_FALSE(has_fp8_codes(CastRule{.format = Format::int8}));
  EXPECT_FALSE(has_fp8_codes(CastRule{.rounding = formats::Rounding::stochastic}));
  EXPECT_FALSE(has_fp8_codes(CastRule{.overflow = formats::Overflow::non_finite}));
  EXPECT_FALSE(has_fp8_codes(CastRule{.hadamard = 16}));
  for (const Grouping grouping : {Grouping::none, Grouping::mx, Grouping::nvfp4}) {
    EXPECT_FALSE(has_fp8_codes(CastRule{.grouping = grouping}));
  }
}

TEST(Fp8Rule, GroupsHaveTheKernelsNames) {
  EXPECT_EQ(fp8_groups<Groups>(Grouping::tensor, false), Groups::tensor);
  EXPECT_EQ(fp8_groups<Groups>(Grouping::delayed, false), Groups::tensor);
  EXPECT_EQ(fp8_groups<Groups>(Grouping::delayed, true), Groups::given);
  EXPECT_EQ(fp8_groups<Groups>(Grouping::row, false), Groups::row);
  EXPECT_EQ(fp8_groups<Groups>(Grouping::tile, false), Groups::tile);
  EXPECT_EQ(fp8_groups<Groups>(Grouping::block, false), Groups::block);
}

TEST(Fp8Rule, CastsAreSharedWhereTheyAreTheSame) {
  for (const Grouping grouping : {Grouping::tensor, Grouping::delayed, Grouping::block}) {
    EXPECT_TRUE(can_share(CastRule{.grouping = grouping}, false));
  }
  for (const Grouping grouping : {Grouping::row, Grouping::tile}) {
    EXPECT_FALSE(can_share(CastRule{.grouping = grouping}, false));
    EXPECT_TRUE(can_share(CastRule{.grouping = grouping}, true));
  }
  EXPECT_FALSE(can_share(CastRule{.rounding = formats::Rounding::stochastic}, true));
}

TEST(Fp8Rule, GradientsKeepAllBitsOfTheirSums) {
  EXPECT_TRUE(may_sum_fast(Product::forward));
  EXPECT_FALSE(may_sum_fast(Product::input_gradient));
  EXPECT_FALSE(may_sum_fast(Product::weight_gradient));
}

}  // namespace
}  // namespace gnmr::recipes
