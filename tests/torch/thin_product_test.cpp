// SPDX-License-Identifier: Apache-2.0
#include "gnmr/low/thin_product.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <vector>

#include "torch/low_on_tensors.h"
#include "torch/tensor_testing.h"

namespace gnmr::nn {
namespace {

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
  at::set_num_threads(3);
  EXPECT_TRUE(same_bits(thin_product(matrix, down), one_down));
  EXPECT_TRUE(same_bits(thin_product(matrix.t(), up), one_up));
  at::set_num_threads(threads);
}

}  // namespace
}  // namespace gnmr::nn
