// SPDX-License-Identifier: Apache-2.0
#include "gnmr/kernels/tile_product_reference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "gnmr/core/error.h"

namespace gnmr::kernels {
namespace {

constexpr std::uint8_t kOne = 0x38;
constexpr std::uint8_t kTwo = 0x40;
constexpr std::uint8_t kMinusOne = 0xb8;
constexpr std::uint8_t kNan = 0x7f;

/// 16 x 16 over 144: a block and a short one. All codes are one.
struct Operands {
  std::vector<std::uint8_t> a = std::vector<std::uint8_t>(16 * 144, kOne);
  std::vector<std::uint8_t> b = std::vector<std::uint8_t>(16 * 144, kOne);
  std::vector<float> a_scales = std::vector<float>(2 * 16, 1.0f);
  std::vector<float> b_scales = std::vector<float>(2 * 16, 1.0f);

  TileProductTask task() const {
    return {.a = a.data(),
            .a_scales = a_scales.data(),
            .b = b.data(),
            .b_scales = b_scales.data(),
            .rows = 16,
            .columns = 16,
            .depth = 144};
  }
};

TEST(ReferenceTileProduct, TakesScalesOfRowColumnAndBlock) {
  Operands operands;
  for (std::size_t i = 0; i < 32; ++i) {
    operands.a_scales[i] = static_cast<float>(i + 1);
    operands.b_scales[i] = 100.0f + static_cast<float>(i);
  }
  operands.a[3 * 144 + 7] = kTwo;
  operands.b[5 * 144 + 140] = kMinusOne;
  const ReferenceProduct product = reference_tile_product(operands.task());
  EXPECT_EQ(product.sums[0], 1 * 100 * 128 + 17 * 116 * 16);
  EXPECT_EQ(product.sums[3 * 16 + 4], 4 * 104 * 129 + 20 * 120 * 16);
  EXPECT_EQ(product.sums[2 * 16 + 5], 3 * 105 * 128 + 19 * 121 * 14);
  EXPECT_EQ(product.magnitudes[2 * 16 + 5], 3 * 105 * 128 + 19 * 121 * 16);
}

TEST(ReferenceTileProduct, TakesScalesOfBlocks) {
  Operands operands;
  operands.b_scales = {2, 3, 50, 50};
  TileProductTask task = operands.task();
  task.b_groups = CastGroups::block;
  EXPECT_EQ(reference_tile_product(task).sums[17], 2 * 128 + 3 * 16);
}

TEST(ReferenceTileProduct, KeepsNan) {
  Operands operands;
  operands.a[2 * 144 + 1] = kNan;
  const ReferenceProduct product = reference_tile_product(operands.task());
  for (std::size_t i = 0; i < product.sums.size(); ++i) EXPECT_EQ(std::isnan(product.sums[i]), i / 16 == 2) << i;
}

TEST(TileProduct, RefusesWhatCannotBe) {
  const Operands operands;
  alignas(16) float product[16 * 16] = {};
  TileProductTask good = operands.task();
  good.product = product;
  EXPECT_NO_THROW(check_tile_product(good));
  const auto refuses = [&](auto change) {
    TileProductTask bad = good;
    change(bad);
    EXPECT_THROW(check_tile_product(bad), Error);
  };
  refuses([](TileProductTask& task) { task.rows = 15; });
  refuses([](TileProductTask& task) { task.columns = 8; });
  refuses([](TileProductTask& task) { task.depth = 100; });
  refuses([](TileProductTask& task) { task.depth = 0; });
  refuses([](TileProductTask& task) { task.rows = std::uint64_t{1} << 24; });
  refuses([](TileProductTask& task) { task.type = ElementType::float16; });
  refuses([](TileProductTask& task) { task.b_groups = CastGroups::row; });
  refuses([](TileProductTask& task) { task.a = nullptr; });
  refuses([](TileProductTask& task) { task.b_scales = nullptr; });
  refuses([](TileProductTask& task) { task.product = static_cast<float*>(task.product) + 1; });
  refuses([](TileProductTask& task) {
    task.b_groups = CastGroups::block;
    task.b_scale_stride = 1;
  });
  TileProductTask none = good;
  none.rows = 0;
  none.a = nullptr;
  EXPECT_NO_THROW(check_tile_product(none));
}

TEST(TileProduct, WithoutItsDeviceIsAnError) {
  if (tile_product_available()) GTEST_SKIP() << "there is one";
  const Operands operands;
  alignas(16) float product[16 * 16] = {};
  TileProductTask task = operands.task();
  task.product = product;
  EXPECT_THROW(multiply_tiles(task, nullptr), Error);
}

}  // namespace
}  // namespace gnmr::kernels
