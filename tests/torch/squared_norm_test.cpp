// SPDX-License-Identifier: Apache-2.0
#include "gnmr/torch/squared_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "torch/tensor_testing.h"

namespace gnmr::nn {
namespace {

using testing::normal;
using testing::Threads;

/// In long double, element by element.
double squared_norm_reference(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.to(at::kDouble).contiguous().view(-1);
  long double sum = 0;
  for (std::int64_t index = 0; index < flat.numel(); ++index) {
    const long double value = flat.const_data_ptr<double>()[index];
    sum += value * value;
  }
  return static_cast<double>(sum);
}

void expect_right(const at::Tensor& tensor) {
  const double expected = squared_norm_reference(tensor);
  EXPECT_NEAR(squared_norm(tensor), expected, 1e-12 * expected) << tensor.scalar_type() << " " << tensor.sizes();
}

TEST(SquaredNorm, OfEveryTypeAndLayout) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    for (const std::int64_t size : {1, 15, 16, 17, 16384, 16385, 70001}) expect_right(normal({size}, 1).to(type));
    const at::Tensor matrix = normal({301, 207}, 2).to(type);
    expect_right(matrix);
    expect_right(matrix.t());
    expect_right(matrix.slice(0, 3, 290, 2));
    expect_right(matrix.slice(1, 1, 100));
    expect_right(matrix.narrow(0, 5, 7));
    expect_right(normal({5, 7, 11, 3}, 3).to(type).permute({2, 0, 3, 1}));
    expect_right(matrix.select(0, 4).expand({9, 207}));
    EXPECT_EQ(squared_norm(at::empty({0, 4}, type)), 0);
    expect_right(at::full({}, 3, type));
  }
}

TEST(SquaredNorm, FiniteGradientsStayFinite) {
  // The squares are beyond float32, the smallest ones below it.
  const at::Tensor huge = at::full({40000}, 3e38f);
  EXPECT_NEAR(squared_norm(huge) / (40000 * 9e76), 1, 1e-6);
  const at::Tensor tiny = at::full({1000}, 1e-42f);
  const double value = tiny[0].item<double>();
  EXPECT_NEAR(squared_norm(tiny) / (1000 * value * value), 1, 1e-12);
  EXPECT_TRUE(std::isfinite(squared_norm(at::full({100}, 65504, at::kHalf))));
  EXPECT_TRUE(std::isfinite(squared_norm(at::full({100}, 3e38f).to(at::kBFloat16))));
}

TEST(SquaredNorm, WhatIsNotFiniteIsSeen) {
  for (const std::int64_t place : {0, 17, 40000}) {
    at::Tensor tensor = normal({40001}, 1);
    tensor[place] = std::numeric_limits<float>::infinity();
    EXPECT_EQ(squared_norm(tensor), std::numeric_limits<double>::infinity());
    tensor[place] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_TRUE(std::isnan(squared_norm(tensor)));
  }
}

TEST(SquaredNorm, ManyAtOnceAreThoseOfEachWhateverTheThreads) {
  std::vector<at::Tensor> tensors{normal({3, 5}, 1),
                                  at::Tensor(),
                                  normal({200000}, 2),
                                  normal({300, 401}, 3).t(),
                                  at::empty({0}),
                                  normal({64, 64}, 4).to(at::kBFloat16),
                                  normal({99}, 5).slice(0, 0, 99, 2)};
  const Threads one(1);
  const std::vector<double> alone = squared_norms(tensors);
  ASSERT_EQ(alone.size(), tensors.size());
  EXPECT_EQ(alone[1], 0);
  for (std::size_t index = 0; index < tensors.size(); ++index) {
    if (tensors[index].defined()) {
      EXPECT_EQ(alone[index], squared_norm(tensors[index])) << index;
    }
  }
  for (const int threads : {2, 3}) {
    const Threads more(threads);
    EXPECT_EQ(squared_norms(tensors), alone);
  }
  EXPECT_TRUE(squared_norms({}).empty());
}

}  // namespace
}  // namespace gnmr::nn
