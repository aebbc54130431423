// SPDX-License-Identifier: Apache-2.0
#include "gnmr/kernels/compare_reference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "gnmr/core/error.h"

namespace gnmr::kernels {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr float kFloatInfinity = std::numeric_limits<float>::infinity();

ResultView view_of(const std::vector<float>& values) { return {values.data(), ElementType::float32}; }

TEST(ReferenceError, AddsSquaresOfTheDifferenceAndOfTheHighResult) {
  ErrorTotals totals{};
  const std::vector<float> high{1, 2, -3};
  reference_add_error(view_of({1, 2.5, -1}), view_of(high), 3, totals);
  EXPECT_EQ(totals.difference, 4.25);
  EXPECT_EQ(totals.reference, 14);
  EXPECT_EQ(totals.measured, 1);
  const std::vector<std::uint16_t> low{bfloat16_of(1), bfloat16_of(0), bfloat16_of(-3)};
  reference_add_error({low.data(), ElementType::bfloat16}, view_of(high), 3, totals);
  EXPECT_EQ(totals.difference, 8.25);
  EXPECT_EQ(totals.reference, 28);
  EXPECT_EQ(totals.measured, 2);
}

TEST(ReferenceError, LeavesOutWhatHasNoReference) {
  ErrorTotals totals{};
  for (const float odd : {kFloatInfinity, -kFloatInfinity, std::nanf("")}) {
    reference_add_error(view_of({1, 2}), view_of({1, odd}), 2, totals);
  }
  EXPECT_EQ(totals.measured, 0);
  EXPECT_EQ(totals.difference, 0);
  reference_add_error(view_of({1, std::nanf("")}), view_of({1, 2}), 2, totals);
  EXPECT_EQ(totals.measured, 1);
  EXPECT_EQ(totals.difference, kInfinity);
  EXPECT_EQ(totals.reference, 5);
}

TEST(ReferenceProjections, ScaleTheKnownSize) {
  ErrorTotals totals{};
  const std::vector<float> low{3, 4};
  const std::vector<float> high{3, 5};
  // Two vectors: 2 x 10 x (34 / 25).
  reference_add_projections(10, low.data(), high.data(), 2, 2, totals);
  EXPECT_DOUBLE_EQ(totals.difference, 1);
  EXPECT_DOUBLE_EQ(totals.reference, 27.2);
  EXPECT_EQ(totals.measured, 1);
}

TEST(ReferenceProjections, KnowOddSizes) {
  const std::vector<float> zero{0, 0};
  const std::vector<float> high{3, 4};
  ErrorTotals totals{};
  reference_add_projections(0, zero.data(), high.data(), 2, 2, totals);  // of a low result of zeros
  EXPECT_EQ(totals.difference, 25);
  EXPECT_EQ(totals.reference, 25);
  totals = {};
  reference_add_projections(std::nan(""), zero.data(), high.data(), 2, 2, totals);
  EXPECT_EQ(totals.difference, kInfinity);
  EXPECT_EQ(totals.reference, 25);
  totals = {};
  const std::vector<float> odd{3, kFloatInfinity};
  reference_add_projections(1, zero.data(), odd.data(), 2, 2, totals);
  EXPECT_EQ(totals.measured, 0);
}

TEST(ReferenceSquare, IsFiniteWhereAllIs) {
  double sum = 1;
  reference_add_square(view_of({3e38f, 1e-30f}), 2, sum);
  EXPECT_TRUE(std::isfinite(sum));
  reference_add_square(view_of({kFloatInfinity}), 1, sum);
  EXPECT_FALSE(std::isfinite(sum));
}

TEST(ReferenceSigns, AreTheBitsOfSplitmixByRows) {
  // The published first outputs of splitmix64 with seed 1234567; bits from the lowest on, 1 for plus.
  const std::uint64_t words[] = {6457827717110365317u, 3203168211198807973u};
  const std::vector<float> by_rows = reference_signs(43, 3, 1234567, SignLayout::by_rows);
  const std::vector<float> by_columns = reference_signs(43, 3, 1234567, SignLayout::by_columns);
  for (std::size_t row = 0; row < 42; ++row) {
    for (std::size_t column = 0; column < 3; ++column) {
      const std::size_t index = row * 3 + column;
      const float expected = (words[index / 64] >> (index % 64) & 1u) != 0 ? 1.0f : -1.0f;
      EXPECT_EQ(by_rows[index], expected);
      EXPECT_EQ(by_columns[column * 43 + row], expected);
    }
  }
}

TEST(Compare, RefusesWhatCannotBeRead) {
  const std::vector<float> values{1, 2};
  EXPECT_NO_THROW(check_result(view_of(values), 2));
  EXPECT_NO_THROW(check_result({nullptr, ElementType::float32}, 0));
  EXPECT_THROW(check_result({nullptr, ElementType::float32}, 1), Error);
  EXPECT_THROW(check_result({values.data(), ElementType::float16}, 1), Error);
  EXPECT_THROW(check_result({reinterpret_cast<const std::byte*>(values.data()) + 2, ElementType::float32}, 1), Error);
}

}  // namespace
}  // namespace gnmr::kernels
