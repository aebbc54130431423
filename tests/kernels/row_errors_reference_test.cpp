// SPDX-License-Identifier: Apache-2.0
#include "gnmr/kernels/row_errors_reference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "gnmr/core/error.h"

namespace gnmr::kernels {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr float kFloatInfinity = std::numeric_limits<float>::infinity();

RowsView view_of(const std::vector<float>& values, std::uint64_t rows) {
  return {values.data(), ElementType::float32, rows, values.size() / rows};
}

ErrorTotals totals_of(const std::vector<ComparedRow>& rows) {
  ErrorTotals totals{};
  add_rows(rows, totals);
  return totals;
}

ErrorTotals projected_totals_of(const std::vector<ProjectedRow>& rows) {
  ErrorTotals totals{};
  add_rows(rows, totals);
  return totals;
}

TEST(RowErrors, AreSharesAboveTheMedianAndBelowTheCap) {
  // The lower median of 1, 4, 16, 64 is 4.
  const ErrorTotals totals = totals_of({{1, 1}, {1, 4}, {1, 16}, {6400, 64}});
  EXPECT_EQ(totals.difference, 0.25 + 0.25 + 0.0625 + 16);
  EXPECT_EQ(totals.reference, 4);
  EXPECT_EQ(totals.measured, 1);
}

TEST(RowErrors, LeaveOutRowsThatSayNothing) {
  for (const double odd : {kInfinity, -kInfinity, std::nan("")}) {
    EXPECT_EQ(totals_of({{1, odd}, {odd, odd}}).measured, 0);
    const ErrorTotals totals = totals_of({{1, odd}, {2, 4}, {0, 0}});
    EXPECT_EQ(totals.difference, 0.5);
    EXPECT_EQ(totals.reference, 1);
    EXPECT_EQ(totals_of({{odd, 4}, {1, 4}}).difference, kInfinity);
  }
  EXPECT_EQ(totals_of({}).measured, 0);
}

TEST(RowErrors, OfZeros) {
  EXPECT_EQ(totals_of({{0, 0}, {0, 0}}).difference, 0);
  EXPECT_EQ(totals_of({{0, 0}, {0, 0}}).measured, 1);
  EXPECT_EQ(totals_of({{0, 0}, {1, 0}}).difference, kInfinity) << "nothing high differs from 0";
  EXPECT_EQ(totals_of({{3, 0}, {0, 4}}).difference, 0.75) << "a row of zeros beside others";
}

TEST(RowErrors, OfProjectionsScaleTheKnownSize) {
  // Projections say that high rows are a quarter of the low ones, whose squared norms are 40; the third row is off by
  // itself.
  const ErrorTotals totals =
      projected_totals_of({{40, 4, 1, 1}, {40, 2, 0.5, 0.5}, {4000, 200, 0.5, 180.5}, {40, 6, 1.5, 1.5}});
  EXPECT_NEAR(totals.difference, 0.1 + 0.05 + 16 + 0.15, 1e-5);
  EXPECT_EQ(totals.reference, 4);
  // A low result of zeros: the high projections are all there is.
  EXPECT_EQ(projected_totals_of({{0, 0, 4, 4}, {0, 0, 4, 4}}).difference, 2);
  EXPECT_EQ(projected_totals_of({{std::nan(""), 0, 4, 4}, {1, 1, 1, 0}}).difference, kInfinity);
  EXPECT_EQ(projected_totals_of({{1, 1, kInfinity, kInfinity}, {1, 1, 1, 0}}).difference, 0);
}

TEST(RowSample, TakesEachRowEquallyOften) {
  for (const std::uint64_t run : {kRunOfTokens, kRunOfOutputs}) {
    for (const std::uint64_t rows : {257u, 1000u, 4096u}) {
      std::vector<int> taken(rows, 0);
      constexpr int kSeeds = 2000;
      for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
        const RowSample sample{seed * 0xd1342543de82ef95u, rows, run};
        std::set<std::uint64_t> once;
        for (std::uint64_t index = 0; index < sample.count(); ++index) {
          const std::uint64_t row = sample.row(index);
          EXPECT_EQ(row % run, index % run) << "runs begin at their multiples";
          if (row >= rows) continue;
          EXPECT_TRUE(once.insert(row).second);
          ++taken[row];
        }
      }
      const double expected = kSeeds * 256.0 / (static_cast<double>((rows + run - 1) / run * run));
      for (const int count : taken) {
        // Parts differ by one run.
        EXPECT_GT(count, 0.45 * expected);
        EXPECT_LT(count, 2.1 * expected);
      }
    }
  }
}

TEST(RowSample, TakesAllOfFew) {
  for (const std::uint64_t rows : {1u, 16u, 255u, 256u}) {
    const RowSample sample{7, rows, kRunOfOutputs};
    ASSERT_EQ(sample.count(), rows);
    for (std::uint64_t index = 0; index < rows; ++index) EXPECT_EQ(sample.row(index), index);
  }
}

TEST(Signs, AreTheBitsOfSplitmix) {
  // The published first outputs of splitmix64 with seed 1234567; bits from the lowest on, 1 for plus.
  const std::uint64_t words[] = {6457827717110365317u, 3203168211198807973u};
  for (std::uint64_t index = 0; index < 128; ++index) {
    EXPECT_EQ(is_plus(1234567, index), (words[index / 64] >> (index % 64) & 1u) != 0) << index;
  }
}

/// Numbers that are the same of each vector.
std::vector<double> repeated(const std::vector<double>& of_one) {
  std::vector<double> all;
  for (std::uint64_t k = 0; k < kSignVectors; ++k) all.insert(all.end(), of_one.begin(), of_one.end());
  return all;
}

TEST(ReferenceProducts, MultiplyBothWays) {
  const std::vector<float> values{1, 2, 3, 4, 5, 6};
  const auto sign = [](std::uint64_t index) { return is_plus(9, index) ? 1.0 : -1.0; };
  const ReferenceSums rows = reference_multiply_signs(view_of(values, 2), 9, false);
  EXPECT_EQ(rows.sums[3], 4 * sign(1) + 5 * sign(kSignVectors + 1) + 6 * sign(2 * kSignVectors + 1))
      << "the second vector, the second row";
  EXPECT_EQ(rows.magnitudes, repeated({6, 15}));
  const ReferenceSums columns = reference_multiply_signs(view_of(values, 2), 9, true);
  EXPECT_EQ(columns.sums[2], 3 * sign(0) + 6 * sign(kSignVectors)) << "the first vector, the third column";
  EXPECT_EQ(columns.magnitudes, repeated({5, 7, 9}));
}

TEST(RowErrors, RefuseWhatCannotBeRead) {
  const std::vector<float> values{1, 2};
  EXPECT_NO_THROW(check_rows(view_of(values, 1)));
  EXPECT_NO_THROW(check_rows({nullptr, ElementType::float32, 0, 5}));
  EXPECT_THROW(check_rows({nullptr, ElementType::float32, 1, 1}), Error);
  EXPECT_THROW(check_rows({values.data(), ElementType::float16, 1, 1}), Error);
  EXPECT_THROW(check_rows({reinterpret_cast<const std::byte*>(values.data()) + 2, ElementType::float32, 1, 1}), Error);
  EXPECT_THROW(check_rows({values.data(), ElementType::float32, std::uint64_t{1} << 24, 1}), Error);
}

}  // namespace
}  // namespace gnmr::kernels
