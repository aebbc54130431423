// SPDX-License-Identifier: Apache-2.0
#include "gnmr/models/fused_ops.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

namespace gnmr::models {
namespace {

using Tensors = std::vector<at::Tensor>;
using Operation = std::function<Tensors(const Tensors&)>;

at::Tensor random(at::IntArrayRef shape, std::int64_t seed) {
  at::manual_seed(static_cast<std::uint64_t>(seed));
  return at::randn(shape);
}

// Outputs, and the gradients of a weighted sum of them.
Tensors run(const Operation& operation, const Tensors& inputs, at::ScalarType type) {
  Tensors leaves;
  for (const at::Tensor& input : inputs) leaves.push_back(input.detach().to(type).clone().requires_grad_());
  Tensors results = operation(leaves);
  at::Tensor total = at::zeros({}, at::TensorOptions().dtype(type));
  std::int64_t seed = 100;
  for (const at::Tensor& result : results) {
    total = total + (result * random(result.sizes(), ++seed).to(type)).sum();
  }
  total.backward();
  for (at::Tensor& result : results) result = result.detach();
  for (const at::Tensor& leaf : leaves) results.push_back(leaf.grad());
  return results;
}

// Float32 takes the fused path, double precision torch's own operators.
void expect_as_in_double(const Operation& operation, const Tensors& inputs) {
  const Tensors ours = run(operation, inputs, at::kFloat);
  const Tensors exact = run(operation, inputs, at::kDouble);
  ASSERT_EQ(ours.size(), exact.size());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    ASSERT_EQ(ours[i].sizes(), exact[i].sizes());
    const double error = (ours[i].to(at::kDouble) - exact[i]).abs().max().item<double>();
    EXPECT_LT(error, 1e-6 * (1 + exact[i].abs().max().item<double>())) << "result " << i;
  }
}

Tensors normed(const Tensors& in) { return {rms_norm(in[0], in[1], 1e-5)}; }

Tensors added_and_normed(const Tensors& in) {
  const auto [sum, output] = add_rms_norm(in[0], in[1], in[2], 1e-5);
  return {sum, output};
}

Tensors gated(const Tensors& in) { return {swiglu(in[0], in[1])}; }

TEST(FusedOps, AreWhatTheyAreInDoublePrecision) {
  for (const std::int64_t width : {1, 7, 16, 33, 96, 288}) {
    expect_as_in_double(normed, {random({3, 67, width}, 1), random({width}, 2)});
    expect_as_in_double(added_and_normed, {random({2, 65, width}, 3), random({2, 65, width}, 4), random({width}, 5)});
    expect_as_in_double(gated, {random({5, 41, width}, 6) * 5, random({5, 41, width}, 7)});
  }
  for (const std::int64_t head_dim : {2, 6, 32, 48}) {
    const RotaryTable table = make_rotary_table(19, head_dim, 10000);
    expect_as_in_double([&](const Tensors& in) { return Tensors{rotate_positions(in[0], table, 3)}; },
                        {random({2, 19, 3 * head_dim}, 8)});
  }
}

TEST(FusedOps, TakeInputsThatAreNotContiguous) {
  const Operation transposed = [](const Tensors& in) { return Tensors{rms_norm(in[0].transpose(0, 1), in[1], 1e-5)}; };
  expect_as_in_double(transposed, {random({12, 7, 16}, 1), random({16}, 2)});
  const Operation sliced = [](const Tensors& in) {
    return Tensors{swiglu(in[0].slice(-1, 0, 8), in[0].slice(-1, 8)).transpose(0, 1)};
  };
  expect_as_in_double(sliced, {random({6, 5, 16}, 3)});
}

TEST(FusedOps, DoNotDependOnTheNumberOfThreads) {
  const int before = at::get_num_threads();
  const Tensors inputs{random({8, 128, 96}, 1), random({8, 128, 96}, 2), random({96}, 3)};
  at::set_num_threads(1);
  const Tensors alone = run(added_and_normed, inputs, at::kFloat);
  at::set_num_threads(3);
  const Tensors together = run(added_and_normed, inputs, at::kFloat);
  at::set_num_threads(before);
  for (std::size_t i = 0; i < alone.size(); ++i) EXPECT_TRUE(at::equal(alone[i], together[i])) << i;
}

TEST(FusedOps, PassNotANumberAndInfinityOn) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const at::Tensor gate = at::tensor({kNan, kInfinity, 200.0F, -200.0F, 0.0F, 1.0F, 1.0F});
  const at::Tensor up = at::tensor({1.0F, 1.0F, 1.0F, 1.0F, 1.0F, kNan, kInfinity});
  const at::Tensor output = swiglu(gate, up);
  EXPECT_TRUE(std::isnan(output[0].item<float>()));
  EXPECT_EQ(output[1].item<float>(), kInfinity);
  EXPECT_EQ(output[2].item<float>(), 200.0F);
  EXPECT_NEAR(output[3].item<float>(), 0.0F, 1e-30F);
  EXPECT_EQ(output[4].item<float>(), 0.0F);
  EXPECT_TRUE(std::isnan(output[5].item<float>()));
  EXPECT_EQ(output[6].item<float>(), kInfinity);
  at::Tensor rows = at::ones({2, 20});
  rows[0][3] = kNan;
  const at::Tensor norm = rms_norm(rows, at::ones({20}), 1e-5);
  EXPECT_TRUE(norm[0].isnan().all().item<bool>());
  EXPECT_TRUE(norm[1].isfinite().all().item<bool>());
}

TEST(FusedOps, ARotationTurnsPairsByThePositionsAngle) {
  const RotaryTable table = make_rotary_table(3, 4, 100);
  // theta^(-2 i / 4): 1 and 0.1.
  const at::Tensor turned = rotate_positions(at::tensor({1.0F, 1.0F, 0.0F, 0.0F}).expand({1, 3, 4}), table, 1);
  const at::Tensor last = turned[0][2][0];
  EXPECT_NEAR(last[0].item<float>(), std::cos(2.0), 1e-6);
  EXPECT_NEAR(last[1].item<float>(), std::cos(0.2), 1e-6);
  EXPECT_NEAR(last[2].item<float>(), std::sin(2.0), 1e-6);
  EXPECT_NEAR(last[3].item<float>(), std::sin(0.2), 1e-6);
}

}  // namespace
}  // namespace gnmr::models
