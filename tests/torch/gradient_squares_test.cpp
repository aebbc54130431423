// SPDX-License-Identifier: Apache-2.0
#include "gnmr/torch/gradient_squares.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "gnmr/torch/device_stream.h"
#include "gnmr/torch/squared_norm.h"
#include "torch/tensor_testing.h"

namespace gnmr::nn {
namespace {

using testing::normal;

std::vector<at::Tensor> mixed_gradients(std::uint64_t seed) {
  return {normal({300, 70}, seed),
          {},
          normal({70}, seed + 1).to(at::kBFloat16),
          normal({33, 5}, seed + 2).to(at::kHalf).t(),
          at::empty({0, 4})};
}

void expect_equal(const std::vector<double>& sums, const std::vector<at::Tensor>& gradients) {
  const std::vector<double> expected = squared_norms(gradients);
  ASSERT_EQ(sums.size(), expected.size());
  for (std::size_t index = 0; index < sums.size(); ++index) {
    EXPECT_NEAR(sums[index], expected[index], 1e-6 * expected[index]) << index;
  }
}

TEST(GradientSquares, AreSquaredNormsOnTheCpu) {
  GradientSquares squares;
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    const std::vector<at::Tensor> gradients = mixed_gradients(seed);
    EXPECT_EQ(squares.measure(gradients), squared_norms(gradients));
  }
  EXPECT_TRUE(squares.measure({}).empty());
  EXPECT_EQ(current_stream(at::kCPU), nullptr);
}

TEST(GradientSquares, AreTheSameOnADevice) {
  if (!at::globalContext().hasCUDA()) GTEST_SKIP() << "no CUDA device";
  GradientSquares squares;
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    std::vector<at::Tensor> gradients = mixed_gradients(seed);
    if (seed == 2) gradients.push_back(at::full({50}, 3e38f));
    std::vector<at::Tensor> there;
    for (const at::Tensor& gradient : gradients) there.push_back(gradient.defined() ? gradient.cuda() : gradient);
    expect_equal(squares.measure(there), gradients);
    expect_equal(squares.measure(there), gradients);
    there[0][2][3] = std::numeric_limits<float>::infinity();
    EXPECT_FALSE(std::isfinite(squares.measure(there)[0]));
  }
}

}  // namespace
}  // namespace gnmr::nn
