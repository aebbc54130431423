// SPDX-License-Identifier: Apache-2.0
#include "gnmr/kernels/thin_rows_reference.h"

#include <gtest/gtest.h>

#include <vector>

#include "gnmr/core/error.h"

namespace gnmr::kernels {
namespace {

ThinMatrix matrix_of(const std::vector<float>& values, std::uint64_t rows) {
  return {values.data(), ElementType::float32, rows, values.size() / rows};
}

TEST(RowSigns, AreThoseOfThePatrol) {
  // The published first outputs of splitmix64 with seed 1234567; bits from the lowest on, 1 for plus.
  const std::uint64_t words[] = {6457827717110365317u, 3203168211198807973u};
  for (std::uint64_t row = 0; row < 128; ++row) {
    EXPECT_EQ(row_sign(1234567, row), (words[row / 64] >> (row % 64) & 1u) != 0) << row;
  }
}

TEST(ReferenceGroups, AddRowsWithTheirSigns) {
  constexpr std::uint64_t kRows = 130;  // groups of two and three rows
  std::vector<float> values;
  for (std::uint64_t row = 0; row < kRows; ++row) values.insert(values.end(), {1, static_cast<float>(row)});
  double norm = 0;
  const ReferenceSums sums = reference_group_rows(matrix_of(values, kRows), 7, &norm);
  ASSERT_EQ(sums.sums.size(), 128u);
  std::uint64_t row = 0;
  for (std::uint64_t group = 0; group < 64; ++group) {
    double ones = 0;
    double numbers = 0;
    for (; row < (group + 1) * kRows / 64; ++row) {
      ones += row_sign(7, row) ? 1 : -1;
      numbers += (row_sign(7, row) ? 1.0 : -1.0) * static_cast<double>(row);
    }
    EXPECT_EQ(sums.sums[group * 2], ones);
    EXPECT_EQ(sums.sums[group * 2 + 1], numbers);
  }
  EXPECT_EQ(norm, 130 + 129.0 * 130 * 259 / 6);
  EXPECT_EQ(reference_group_rows(matrix_of({1, 2, 3}, 3), 7, nullptr).magnitudes, (std::vector<double>{1, 2, 3}));
}

TEST(ReferenceProducts, MultiplyBothWays) {
  const std::vector<float> values{1, 2, 3, 4, 5, 6};
  const std::vector<float> vectors{1, -1, 1, 10, 100, 1000};
  EXPECT_EQ(reference_multiply(matrix_of(values, 2), vectors.data(), 2).sums, (std::vector<double>{2, 5, 3210, 6540}));
  EXPECT_EQ(reference_multiply(matrix_of(values, 2), vectors.data(), 1).magnitudes, (std::vector<double>{6, 15}));
  EXPECT_EQ(reference_multiply_transposed(matrix_of(values, 2), vectors.data(), 2).sums,
            (std::vector<double>{-3, -3, -3, 41, 52, 63}));
}

TEST(ThinRows, RefusesWhatCannotBe) {
  ThinMatrix matrix{.rows = 5, .columns = 5};
  EXPECT_NO_THROW(check_thin(matrix, 4));
  EXPECT_THROW(check_thin(matrix, 0), Error);
  EXPECT_THROW(check_thin(matrix, 5), Error);
  matrix.type = ElementType::float16;
  EXPECT_THROW(check_thin(matrix, 1), Error);
  matrix = {.rows = std::uint64_t{1} << 24, .columns = 1};
  EXPECT_THROW(check_thin(matrix, 1), Error);
}

}  // namespace
}  // namespace gnmr::kernels
