// SPDX-License-Identifier: Apache-2.0
#include "gnmr/low/thin_product.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "torch/low_on_tensors.h"
#include "torch/tensor_testing.h"

namespace gnmr::nn {
namespace {

using low::kRowGroups;
using testing::normal;
using testing::same_bits;

TEST(ThinProduct, IsTheProduct) {
  for (const std::int64_t rows : {1, 7, 64, 1000}) {
    for (const std::int64_t columns : {1, 15, 16, 33, 96, 250}) {
      for (const std::int64_t thin_columns : {1, 2, 3, 4, 5}) {
        const at::Tensor matrix = normal({rows, columns}, 1);
        const at::Tensor wide = normal({rows, columns + 3}, 2);
        const at::Tensor thin = normal({columns, thin_columns}, 3);
        for (const at::Tensor& left : {matrix, wide.slice(1, 1, columns + 1), matrix.t().contiguous().t(),
                                       wide.t().contiguous().t().slice(1, 0, columns)}) {
          const at::Tensor expected = at::mm(left.to(at::kDouble), thin.to(at::kDouble));
          const at::Tensor result = thin_product(left, thin);
          ASSERT_EQ(result.sizes(), expected.sizes());
          EXPECT_LT(testing::relative_difference(result, expected), 1e-5)
              << rows << " x " << columns << " x " << thin_columns;
        }
      }
    }
  }
}

TEST(ThinProduct, TakesOtherTypesAndThinViews) {
  const at::Tensor matrix = normal({20, 30}, 1);
  const at::Tensor thin = normal({2, 30}, 2).t();
  const at::Tensor expected = at::mm(matrix, thin);
  EXPECT_LT(testing::relative_difference(thin_product(matrix, thin), expected), 1e-5);
  const at::Tensor coarse = thin_product(matrix.to(at::kBFloat16), thin.to(at::kBFloat16));
  EXPECT_EQ(coarse.scalar_type(), at::kBFloat16);
  EXPECT_LT(testing::relative_difference(coarse.to(at::kFloat), expected), 0.02);
  EXPECT_EQ(thin_product(at::empty({0, 30}), thin).sizes(), (std::vector<std::int64_t>{0, 2}));
}

TEST(ThinProduct, HasTheSameBitsWithAnyNumberOfThreads) {
  const at::Tensor matrix = normal({3000, 130}, 1);
  const at::Tensor down = normal({130, 4}, 2);
  const at::Tensor up = normal({3000, 2}, 3);
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const at::Tensor one_down = thin_product(matrix, down);
  const at::Tensor one_up = thin_product(matrix.t(), up);
  const GroupedRows one = grouped_rows(matrix, 7);
  at::set_num_threads(3);
  EXPECT_TRUE(same_bits(thin_product(matrix, down), one_down));
  EXPECT_TRUE(same_bits(thin_product(matrix.t(), up), one_up));
  const GroupedRows many = grouped_rows(matrix, 7);
  EXPECT_TRUE(same_bits(many.sums, one.sums));
  EXPECT_EQ(many.squared_norm, one.squared_norm);
  at::set_num_threads(threads);
}

TEST(GroupedRows, AddEveryRowOnceWithASign) {
  for (const std::int64_t rows : {1, 63, 64, 65, 1000}) {
    const std::int64_t groups = std::min(rows, kRowGroups);
    // A power of two for each row of a group: a sum tells which rows are in it, and with which signs.
    at::Tensor matrix = at::zeros({rows, 70});
    for (std::int64_t group = 0, row = 0; group < groups; ++group) {
      for (double value = 1; row < (group + 1) * rows / groups; ++row, value *= 2) matrix.select(0, row).fill_(value);
    }
    const GroupedRows grouped = grouped_rows(matrix, 3);
    ASSERT_EQ(grouped.sums.size(0), groups);
    for (std::int64_t group = 0; group < groups; ++group) {
      EXPECT_TRUE((grouped.sums[group] == grouped.sums[group][0]).all().item<bool>());
      double rest = grouped.sums[group][0].item<double>();
      for (std::int64_t row = (group + 1) * rows / groups - 1; row >= group * rows / groups; --row) {
        EXPECT_NE(rest, 0);
        rest -= std::copysign(matrix[row][0].item<double>(), rest);
      }
      EXPECT_EQ(rest, 0) << rows << " rows, group " << group;
    }
    EXPECT_NEAR(grouped.squared_norm / matrix.square().sum().item<double>(), 1, 1e-5);
  }
}

TEST(GroupedRows, KeepTheSquareOnAverage) {
  at::Tensor matrix = 0.01 * normal({900, 40}, 1);
  matrix.select(0, 123) += 5 * normal({40}, 2);  // one row among many
  const double all = matrix.square().sum().item<double>();
  double sum = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const double square = grouped_rows(matrix, seed).sums.square().sum().item<double>();
    EXPECT_GT(square, 0.5 * all) << "no row is left out";
    sum += square / 40;
  }
  EXPECT_NEAR(sum / all, 1, 0.05);
  const GroupedRows transposed = grouped_rows(matrix.t().contiguous().t(), 3);
  EXPECT_LT(testing::relative_difference(transposed.sums, grouped_rows(matrix, 3).sums), 1e-5);
  EXPECT_NEAR(transposed.squared_norm / all, 1, 1e-5);
}

TEST(GroupedRows, KnowTheSquareOfExtremeNumbers) {
  for (const double scale : {1e-30, 1e-20, 1.0, 1e30}) {
    const at::Tensor matrix = normal({100, 33}, 1) * scale;
    const double expected = matrix.to(at::kDouble).square().sum().item<double>();
    EXPECT_NEAR(grouped_rows(matrix, 1).squared_norm / expected, 1, 1e-5) << scale;
  }
  at::Tensor broken = normal({100, 33}, 1);
  broken[50][32] = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(std::isfinite(grouped_rows(broken, 1).squared_norm));
}

}  // namespace
}  // namespace gnmr::nn
