// SPDX-License-Identifier: Apache-2.0
#include "gnmr/kernels/device.h"

#include <gtest/gtest.h>

#include "gnmr/core/error.h"
#include "gnmr/kernels/adamw.h"
#include "gnmr/kernels/delayed_scales.h"
#include "gnmr/kernels/norms.h"
#include "gnmr/kernels/read_floor.h"
#include "gnmr/kernels/row_errors.h"
#include "gnmr/kernels/signals.h"

namespace gnmr::kernels {
namespace {

TEST(Device, ThatIsNotThereIsAnError) {
  if (available()) GTEST_SKIP() << "there is one";
  EXPECT_THROW(UnitNorms(1), Error);
  EXPECT_THROW(UnitSignals(1, {.rules = {}, .window = 5}), Error);
  EXPECT_THROW(DelayedScales({}), Error);
  float number = 1;
  const RowsView row{&number, ElementType::float32, 1, 1};
  EXPECT_THROW(add_error(row, row, {}, nullptr, nullptr), Error);
  EXPECT_THROW(multiply_signs(row, {.of_rows = &number}, nullptr, nullptr), Error);
  std::uint32_t sink = 0;
  EXPECT_THROW(read_floor(&sink, 0, ReadOrder::pieces, &sink, nullptr), Error);
  const auto step_without = [] {
    float one = 0;
    const AdamWTensor tensor{
        .parameter = &one, .gradient = &one, .mean = &one, .square = &one, .steps = &one, .count = 1};
    Gate gate{};
    AdamW().step({&tensor, 1}, {}, &gate, nullptr);
  };
  EXPECT_THROW(step_without(), Error);
}

TEST(ReadFloor, FoldsWholeVectors) {
  const std::uint32_t words[] = {1, 2, 4, 8, 16, 32, 64, 128, 256};
  EXPECT_EQ(reference_fold(words, sizeof words), 255u);
  EXPECT_EQ(reference_fold(words, 31), 15u);
}

}  // namespace
}  // namespace gnmr::kernels
