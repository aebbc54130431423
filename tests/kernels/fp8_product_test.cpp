// SPDX-License-Identifier: Apache-2.0
#include "gnmr/kernels/fp8_product.h"

#include <gtest/gtest.h>

#include "gnmr/kernels/device.h"

namespace gnmr::kernels {
namespace {

using formats::Format;

constexpr Fp8Ability kHopper{.compute_capability = 90, .has_tile_product = true};

Fp8Facing side(CastGroups groups, std::uint64_t rows, std::uint64_t depth, Format format = Format::e4m3) {
  return {.format = format, .groups = groups, .rows = rows, .depth = depth};
}

Fp8Plan plan(const Fp8Facing& left, const Fp8Facing& right, const Fp8Ability& ability = kHopper) {
  return plan_fp8_product(left, right, ElementType::bfloat16, ability);
}

TEST(Fp8Product, OneScaleIsTorchs) {
  for (const CastGroups left : {CastGroups::tensor, CastGroups::given}) {
    for (const CastGroups right : {CastGroups::tensor, CastGroups::given}) {
      const Fp8Plan found = plan(side(left, 32, 64), side(right, 48, 64));
      EXPECT_EQ(found.by, Multiplier::torch);
      EXPECT_TRUE(found.may_sum_fast);
      EXPECT_FALSE(found.spreads_blocks);
    }
  }
  EXPECT_EQ(plan(side(CastGroups::row, 32, 64), side(CastGroups::row, 48, 64)).by, Multiplier::torch);
}

TEST(Fp8Product, WhatNobodyMultipliesIsMadeOfNumbers) {
  constexpr CastGroups kTensor = CastGroups::tensor;
  EXPECT_EQ(plan(side(kTensor, 33, 64), side(kTensor, 48, 64)).by, Multiplier::numbers);
  EXPECT_EQ(plan(side(kTensor, 32, 65), side(kTensor, 48, 65)).by, Multiplier::numbers);
  EXPECT_EQ(plan(side(kTensor, 32, 64), side(kTensor, 47, 64)).by, Multiplier::numbers);
  EXPECT_EQ(plan(side(kTensor, 32, 64), side(CastGroups::row, 48, 64)).by, Multiplier::numbers);
  EXPECT_EQ(plan(side(CastGroups::row, 32, 64), side(kTensor, 48, 64)).by, Multiplier::numbers);
  EXPECT_EQ(plan(side(CastGroups::block, 32, 64), side(CastGroups::tile, 48, 64)).by, Multiplier::numbers);
  for (const int capability : {0, 80, 89, 100, 120}) {
    const Fp8Ability other{.compute_capability = capability, .has_tile_product = false};
    EXPECT_EQ(plan(side(kTensor, 32, 64), side(kTensor, 48, 64), other).by, Multiplier::numbers);
  }
}

TEST(Fp8Product, FormatsMix) {
  constexpr CastGroups kTensor = CastGroups::tensor;
  const auto by = [](CastGroups groups, Format left, Format right) {
    return plan(side(groups, 32, 64, left), side(groups, 48, 64, right)).by;
  };
  EXPECT_EQ(by(kTensor, Format::e5m2, Format::e4m3), Multiplier::torch);
  EXPECT_EQ(by(kTensor, Format::e4m3, Format::e5m2), Multiplier::torch);
  EXPECT_EQ(by(kTensor, Format::e5m2, Format::e5m2), Multiplier::numbers);
  EXPECT_EQ(by(CastGroups::tile, Format::e5m2, Format::e4m3), Multiplier::numbers);
}

TEST(Fp8Product, LargeProductsOfTilesAreOurs) {
  const Fp8Facing left = side(CastGroups::tile, 13824, 8192);
  const Fp8Facing right = side(CastGroups::tile, 5120, 8192);
  EXPECT_EQ(plan(left, right).by, Multiplier::own);
  EXPECT_EQ(plan(right, right).by, Multiplier::torch);
  EXPECT_FALSE(plan(right, right).may_sum_fast);
  // Ours is not there, or does not write what is asked for.
  EXPECT_EQ(plan(left, right, {.compute_capability = 90, .has_tile_product = false}).by, Multiplier::torch);
  EXPECT_EQ(plan_fp8_product(left, right, std::nullopt, kHopper).by, Multiplier::torch);
  EXPECT_EQ(plan_fp8_product(left, right, ElementType::float16, kHopper).by, Multiplier::torch);
}

TEST(Fp8Product, TorchTakesFourBlocksAtATime) {
  const auto of_depth = [](std::uint64_t depth, bool has_own) {
    return plan(side(CastGroups::tile, 32, depth), side(CastGroups::block, 48, depth),
                {.compute_capability = 90, .has_tile_product = has_own});
  };
  EXPECT_EQ(of_depth(512, true).by, Multiplier::torch);
  EXPECT_FALSE(of_depth(512, true).spreads_blocks);
  EXPECT_EQ(of_depth(400, true).by, Multiplier::torch);  // four blocks, the last in part
  EXPECT_EQ(of_depth(384, true).by, Multiplier::own);
  EXPECT_EQ(of_depth(384, false).by, Multiplier::torch);
  EXPECT_TRUE(of_depth(384, false).spreads_blocks);
  EXPECT_FALSE(of_depth(384, false).may_sum_fast);
}

TEST(Fp8Product, ScalesAreAsManyAsCastsWrite) {
  for (const CastGroups groups :
       {CastGroups::tensor, CastGroups::given, CastGroups::row, CastGroups::tile, CastGroups::block}) {
    for (const std::uint64_t rows : {1u, 128u, 129u, 400u}) {
      for (const std::uint64_t columns : {1u, 127u, 256u, 385u}) {
        const CastTask task{.rows = rows, .columns = columns, .groups = groups};
        const auto by_rows = fp8_scale_shape(groups, rows, columns);
        const auto by_columns = fp8_scale_shape(groups, columns, rows);
        EXPECT_EQ(by_rows[0] * by_rows[1], scale_count(task, {}, false));
        EXPECT_EQ(by_columns[0] * by_columns[1], scale_count(task, {}, true));
      }
    }
  }
}

TEST(Fp8Product, AbilityIsThatOfTheDevice) {
  EXPECT_EQ(fp8_ability().compute_capability, compute_capability());
  EXPECT_EQ(fp8_ability().has_tile_product, compute_capability() == 90);
}

}  // namespace
}  // namespace gnmr::kernels
