// SPDX-License-Identifier: Apache-2.0
#include "gnmr/torch/switchable_scale.h"

#include <gtest/gtest.h>

#include "torch/tensor_testing.h"

namespace gnmr::nn {
namespace {

using testing::builtin;
using testing::normal;
using testing::relative_difference;

/// What one forward and backward of a scale gives.
struct ScaleResult {
  at::Tensor output, input_gradient, weight_gradient, bias_gradient;
};

/// A scale of 64 channels with an input and a gradient of its output, always the same.
struct ScaleBench {
  ScaleBench() : scale(64), input(normal({3, 20, 64}, 1)), gradient(normal({3, 20, 64}, 2) * 1e-3) {
    const at::NoGradGuard no_gradients;
    scale->weight.copy_(1 + 0.1 * normal({64}, 3));
    scale->bias.copy_(normal({64}, 4));
  }

  ScaleResult run() {
    const at::Tensor leaf = input.detach().clone().requires_grad_();
    scale->zero_grad();
    const at::Tensor output = scale->forward(leaf);
    output.backward(gradient);
    return {output.detach(), leaf.grad(), scale->weight.grad().clone(), scale->bias.grad().clone()};
  }

  /// By torch's own operators.
  ScaleResult plain() const {
    const at::Tensor leaf = input.detach().clone().requires_grad_();
    const at::Tensor weight = scale->weight.detach().clone().requires_grad_();
    const at::Tensor bias = scale->bias.detach().clone().requires_grad_();
    const at::Tensor output = leaf * weight + bias;
    output.backward(gradient);
    return {output.detach(), leaf.grad(), weight.grad(), bias.grad()};
  }

  SwitchableScale scale;
  at::Tensor input, gradient;
};

void expect_close(const ScaleResult& a, const ScaleResult& b, double most) {
  EXPECT_LE(relative_difference(a.output, b.output), most);
  EXPECT_LE(relative_difference(a.input_gradient, b.input_gradient), most);
  EXPECT_LE(relative_difference(a.weight_gradient, b.weight_gradient), most);
  EXPECT_LE(relative_difference(a.bias_gradient, b.bias_gradient), most);
}

/// OCP's MX along the last dimension, by arithmetic: the scale is 2^(floor(log2 amax) - 8), values are E4M3.
at::Tensor in_mx(const at::Tensor& values) {
  const at::Tensor blocks = values.reshape({-1, 32});
  const at::Tensor amax = blocks.abs().amax(1, true);
  const at::Tensor step = at::exp2(at::floor(at::log2(amax)) - 8);
  const at::Tensor coded = (blocks / step).clamp(-448, 448).to(at::kFloat8_e4m3fn).to(at::kFloat);
  return (coded * step).reshape(values.sizes());
}

std::shared_ptr<const Recipe> mx_recipe() {
  return std::make_shared<const Recipe>(recipes::parse_recipe(R"({"name": "mx",
    "input": {"format": "e4m3", "scaling": "mx"}, "weight": {"format": "e4m3", "scaling": "mx"},
    "output_gradient": {"format": "e4m3", "scaling": "mx"}})"));
}

TEST(SwitchableScale, HighIsTorchsProduct) {
  ScaleBench bench;
  expect_close(bench.run(), bench.plain(), 0);
  bench.scale->paths().recipe = builtin("mxfp8");
  bench.scale->paths().low.fill(false);
  expect_close(bench.run(), bench.plain(), 1e-6);
}

TEST(SwitchableScale, EachProductIsLowAloneAsByHand) {
  for (std::size_t product = 0; product < kProductCount; ++product) {
    ScaleBench bench;
    bench.scale->paths().recipe = mx_recipe();
    bench.scale->paths().low.fill(false);
    bench.scale->paths().low[product] = true;
    const at::Tensor weight = in_mx(bench.scale->weight.detach());
    const at::Tensor x = bench.input.reshape({-1, 64});
    const at::Tensor g = bench.gradient.reshape({-1, 64});
    ScaleResult expected = bench.plain();
    if (product == 0) expected.output = in_mx(bench.input) * weight + bench.scale->bias.detach();
    if (product == 1) expected.input_gradient = in_mx(bench.gradient) * weight;
    // Blocks lie along the tokens that are summed over; 60 are a whole block and a part of one.
    const auto by_tokens = [](const at::Tensor& matrix) {
      const at::Tensor turned = matrix.t().contiguous();
      return at::cat({in_mx(turned.narrow(1, 0, 32).contiguous()),
                      in_mx(at::constant_pad_nd(turned.narrow(1, 32, 28), {0, 4})).narrow(1, 0, 28)},
                     1);
    };
    if (product == 2) expected.weight_gradient = (by_tokens(g) * by_tokens(x)).sum(1);
    const ScaleResult result = bench.run();
    expect_close(result, expected, 1e-6);
    EXPECT_GT(relative_difference(product == 0   ? result.output
                                  : product == 1 ? result.input_gradient
                                                 : result.weight_gradient,
                                  product == 0   ? bench.plain().output
                                  : product == 1 ? bench.plain().input_gradient
                                                 : bench.plain().weight_gradient),
              1e-3);
  }
}

TEST(SwitchableScale, WeightsNearOneFallIntoTheLastBin) {
  ScaleBench bench;
  {
    const at::NoGradGuard no_gradients;
    bench.scale->weight.uniform_(0.88, 0.999);
    bench.scale->bias.zero_();
    bench.input.fill_(1);
  }
  bench.scale->paths().recipe = mx_recipe();
  bench.scale->paths().low.fill(true);
  // 1.75 times the power of two below is the largest number that E4M3 has there.
  EXPECT_TRUE(at::equal(bench.run().output, at::full({3, 20, 64}, 0.875)));
}

/// The error of a result by rows, as docs/algorithm.md defines it.
double error_by_rows(const at::Tensor& low, const at::Tensor& high) {
  const auto sizes = [&](const at::Tensor& values) {
    return values.detach().to(at::kDouble).reshape({-1, high.size(-1)}).square().sum(1);
  };
  const at::Tensor of_high = sizes(high);
  const at::Tensor floor = of_high.masked_select(of_high > 0).median();  // the lower one
  return (sizes(low - high) / of_high.maximum(floor)).clamp_max(16).mean().sqrt().item<double>();
}

TEST(SwitchableScale, PatrolAndTrialMeasureTheSameErrors) {
  ScaleBench bench;
  LinearPaths& paths = bench.scale->paths();
  paths.recipe = mx_recipe();
  const auto errors = [&](bool low, Comparison comparison) {
    paths.begin_step();
    paths.low.fill(low);
    paths.comparison = comparison;
    bench.run();
    std::array<double, kProductCount> found{};
    for (std::size_t product = 0; product < kProductCount; ++product)
      found[product] = paths.measured[product].error.error();
    return found;
  };
  const auto patrolled = errors(true, Comparison::projected);
  const auto tried = errors(false, Comparison::full);
  for (std::size_t product = 0; product < kProductCount; ++product) {
    EXPECT_NEAR(patrolled[product], tried[product], 1e-9) << product;
    EXPECT_GT(patrolled[product], 0.01) << product;
    EXPECT_LT(patrolled[product], 0.2) << product;
  }
  // Without a bias, which is no part of what is compared, the result is as far off as that.
  const at::NoGradGuard no_gradients;
  bench.scale->bias.zero_();
  paths.comparison = Comparison::none;
  paths.low.fill(true);
  const at::Tensor low = bench.scale->forward(bench.input);
  EXPECT_NEAR(error_by_rows(low, bench.input * bench.scale->weight), patrolled[0], 1e-6);
}

}  // namespace
}  // namespace gnmr::nn
