// SPDX-License-Identifier: Apache-2.0
// Real FP8 against the CPU: the same bytes, products within what sums round, the same errors and memories. Needs a GPU.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "gnmr/formats/scaling.h"
#include "gnmr/kernels/device.h"
#include "gnmr/low/gemm.h"
#include "gnmr/torch/switchable_linear.h"
#include "torch/low_on_tensors.h"
#include "torch/tensor_testing.h"

namespace gnmr::nn {
namespace {

using recipes::Grouping;
using testing::builtin;
using testing::normal;
using testing::relative_difference;
using testing::same_bits;

constexpr const char* kRealRecipes[] = {"fp8-tensorwise", "fp8-rowwise", "fp8-delayed", "fp8-deepseek"};

/// Columns and rows of very different sizes, so that scales matter.
at::Tensor uneven(std::int64_t rows, std::int64_t columns, std::uint64_t seed) {
  const at::Tensor plain = normal({rows, columns}, seed);
  return plain * at::exp2(at::randint(-4, 4, {columns})) * at::exp2(at::randint(-3, 3, {rows, 1}));
}

class Fp8OnTheDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!kernels::available()) GTEST_SKIP() << "no CUDA device, or built without CUDA";
  }
};

TEST_F(Fp8OnTheDevice, HasTheNumbersOfTheCpu) {
  for (const Grouping grouping : {Grouping::tensor, Grouping::row, Grouping::tile, Grouping::block}) {
    for (const formats::Format format : {formats::Format::e4m3, formats::Format::e5m2}) {
      const CastRule rule{.format = format, .grouping = grouping};
      const at::Tensor matrix = uneven(160, 400, 1);
      const Fp8Matrix codes = cast_to_fp8(matrix.cuda(), {.rule = rule, .by_rows = true, .by_columns = true});
      const at::Tensor by_rows = cast_operand(matrix, {.rule = rule, .sum_over = SumOver::columns});
      const at::Tensor by_columns = cast_operand(matrix, {.rule = rule, .sum_over = SumOver::rows});
      EXPECT_TRUE(same_bits(values_of(codes.by_rows, grouping).cpu(), by_rows)) << static_cast<int>(grouping);
      EXPECT_TRUE(same_bits(values_of(codes.by_columns, grouping).cpu(), by_columns.t().contiguous()))
          << static_cast<int>(grouping);
    }
  }
}

TEST_F(Fp8OnTheDevice, FormatsThatAreEmulatedHaveTheBitsOfTheCpu) {
  const at::Tensor matrix = uneven(160, 400, 1);
  for (const std::string recipe : {"mxfp8", "nvfp4", "int8", "int4-act", "int3-act"}) {
    const CastRule rule = builtin(recipe)->rule(Product::forward, 0).value();
    for (const SumOver sum_over : {SumOver::columns, SumOver::rows}) {
      const at::Tensor on_device = cast_operand(matrix.cuda(), {.rule = rule, .sum_over = sum_over});
      const at::Tensor on_cpu = cast_operand(matrix, {.rule = rule, .sum_over = sum_over});
      EXPECT_TRUE(same_bits(on_device.cpu().contiguous(), on_cpu.contiguous())) << recipe;
    }
  }
}

TEST_F(Fp8OnTheDevice, ProductsAreThoseOfTheirNumbers) {
  if (kernels::compute_capability() != 90) GTEST_SKIP() << "no real products on this device";
  // 384 and 640: numbers of blocks that no multiple of four is.
  for (const auto& [m, k, n] : {std::tuple{256, 512, 384}, {144, 384, 128}, {128, 640, 272}, {64, 48, 16}}) {
    for (const auto& [left_group, right_group] : {std::pair{Grouping::tensor, Grouping::tensor},
                                                  {Grouping::row, Grouping::row},
                                                  {Grouping::tile, Grouping::tile},
                                                  {Grouping::tile, Grouping::block}}) {
      const CastRule left_rule{.grouping = left_group};
      const CastRule right_rule{.grouping = right_group};
      const Fp8Side left = cast_to_fp8(uneven(m, k, 2).cuda(), {.rule = left_rule, .by_rows = true}).by_rows;
      const Fp8Side right = cast_to_fp8(uneven(n, k, 3).cuda(), {.rule = right_rule, .by_rows = true}).by_rows;
      ASSERT_TRUE(can_multiply(left, left_group, right, right_group));
      const at::Tensor expected =
          at::mm(values_of(left, left_group).to(at::kDouble), values_of(right, right_group).to(at::kDouble).t());
      const at::Tensor in_float = multiply(left, right, right_group, low::Type::float32);
      const at::Tensor in_bfloat16 = multiply(left, right, right_group, low::Type::bfloat16);
      EXPECT_LT(relative_difference(in_float, expected), 2e-3) << m << ' ' << k << ' ' << n << ' ' << int(right_group);
      EXPECT_LT(relative_difference(in_bfloat16, expected), 4e-3) << m << ' ' << k << ' ' << n;
    }
  }
}

/// What one forward and backward gives.
struct MatrixPass {
  at::Tensor output, input_gradient, weight_gradient;
};

/// The same layer on two devices.
struct Pair {
  Pair(const std::string& recipe, at::ScalarType type, std::int64_t tokens = 256, std::int64_t in = 384,
       std::int64_t out = 272)
      : on_cpu(in, out), on_device(in, out) {
    const at::NoGradGuard no_gradients;
    // Of numbers that both types have.
    const auto rounded = [](const at::Tensor& values) { return values.to(at::kBFloat16).to(at::kFloat); };
    on_cpu->weight.copy_(rounded(uneven(out, in, 4) * 0.1));
    on_device->weight.copy_(on_cpu->weight);
    on_device->to(c10::Device(at::kCUDA));
    on_device->to(type);
    input = rounded(uneven(tokens, in, 5));
    gradient = rounded(uneven(tokens, out, 6) * 1e-3);
    for (LinearPaths* paths : {&on_cpu->paths(), &on_device->paths()}) {
      paths->recipe = builtin(recipe);
      paths->low.fill(true);
    }
    device_type = type;
  }

  MatrixPass run(SwitchableLinear& layer, bool device) const {
    const auto place = [&](const at::Tensor& tensor) {
      return device ? tensor.to(at::kCUDA, device_type) : tensor.clone();
    };
    const at::Tensor leaf = place(input).requires_grad_();
    layer->zero_grad();
    const at::Tensor output = layer->forward(leaf);
    output.backward(place(gradient));
    const auto back = [](const at::Tensor& tensor) { return tensor.detach().cpu().to(at::kFloat).clone(); };
    return {back(output), back(leaf.grad()), back(layer->weight.grad())};
  }

  SwitchableLinear on_cpu, on_device;
  at::Tensor input, gradient;
  at::ScalarType device_type = at::kFloat;
};

void expect_pass_near(const MatrixPass& device, const MatrixPass& cpu, double tolerance, const std::string& what) {
  EXPECT_LT(relative_difference(device.output, cpu.output), tolerance) << what;
  EXPECT_LT(relative_difference(device.input_gradient, cpu.input_gradient), tolerance) << what;
  EXPECT_LT(relative_difference(device.weight_gradient, cpu.weight_gradient), tolerance) << what;
}

TEST_F(Fp8OnTheDevice, LayersGiveWhatTheyGiveOnTheCpu) {
  for (const std::string recipe :
       {"fp8-tensorwise", "fp8-rowwise", "fp8-delayed", "fp8-deepseek", "mxfp8", "nvfp4", "int8"}) {
    Pair pair(recipe, at::kFloat);
    expect_pass_near(pair.run(pair.on_device, true), pair.run(pair.on_cpu, false), 2e-3, recipe);
  }
}

TEST_F(Fp8OnTheDevice, LayersInBfloat16DifferByTheRoundingOfResults) {
  for (const std::string recipe : kRealRecipes) {
    Pair pair(recipe, at::kBFloat16);
    expect_pass_near(pair.run(pair.on_device, true), pair.run(pair.on_cpu, false), 5e-3, recipe);
  }
}

TEST_F(Fp8OnTheDevice, ShapesThatNoProductTakesAreEmulated) {
  for (const std::string recipe : kRealRecipes) {
    Pair pair(recipe, at::kFloat, 150, 131, 70);
    expect_pass_near(pair.run(pair.on_device, true), pair.run(pair.on_cpu, false), 1e-5, recipe);
  }
}

TEST_F(Fp8OnTheDevice, EachProductCanRunHighAlone) {
  for (const std::string recipe : kRealRecipes) {
    for (std::size_t high = 0; high < kProductCount; ++high) {
      Pair pair(recipe, at::kFloat);
      pair.on_cpu->paths().low[high] = false;
      pair.on_device->paths().low[high] = false;
      expect_pass_near(pair.run(pair.on_device, true), pair.run(pair.on_cpu, false), 2e-3, recipe);
    }
  }
}

TEST_F(Fp8OnTheDevice, DelayedScalesFollowAsOnTheCpu) {
  Pair pair("fp8-delayed", at::kFloat);
  for (int step = 0; step < 4; ++step) {
    pair.input = pair.input * 1.5;
    pair.gradient = pair.gradient * 0.5;
    pair.on_cpu->paths().begin_step();
    const MatrixPass cpu = pair.run(pair.on_cpu, false);
    pair.on_cpu->paths().end_step();
    if (pair.on_device->paths().numbers) pair.on_device->paths().numbers->begin_step();
    const MatrixPass device = pair.run(pair.on_device, true);
    pair.on_device->paths().numbers->end_step();
    expect_pass_near(device, cpu, 2e-3, std::to_string(step));
    const std::vector<formats::DelayedState> states = pair.on_device->paths().numbers->save();
    ASSERT_EQ(states.size(), 6u);
    for (std::size_t index = 0; index < states.size(); ++index) {
      const formats::DelayedState& expected = pair.on_cpu->paths().amax.delayed[index / 2][index % 2];
      EXPECT_EQ(states[index].scale, expected.scale) << step << ' ' << index;
      EXPECT_EQ(states[index].amax_history, expected.amax_history) << step << ' ' << index;
    }
  }
}

TEST_F(Fp8OnTheDevice, ErrorsAreThoseOfTheCpu) {
  for (const Comparison comparison : {Comparison::full, Comparison::projected}) {
    for (const std::string recipe : kRealRecipes) {
      Pair pair(recipe, at::kFloat);
      for (LinearPaths* paths : {&pair.on_cpu->paths(), &pair.on_device->paths()}) {
        paths->comparison = comparison;
        paths->low.fill(comparison == Comparison::projected);
      }
      pair.run(pair.on_cpu, false);
      pair.run(pair.on_device, true);
      const HostNumbers numbers = numbers_on_host(pair.on_device->paths());
      for (std::size_t product = 0; product < kProductCount; ++product) {
        const ErrorSums& expected = pair.on_cpu->paths().measured[product].error;
        const kernels::ErrorTotals& totals = numbers.errors[product];
        const double error = ErrorSums{totals.difference, totals.reference, totals.measured > 0}.error();
        EXPECT_NEAR(error, expected.error(), 0.02 * expected.error()) << recipe << ' ' << product;
      }
    }
  }
}

TEST_F(Fp8OnTheDevice, EvidenceIsThatOfTheCpu) {
  for (const std::string recipe : kRealRecipes) {
    Pair pair(recipe, at::kFloat);
    for (LinearPaths* paths : {&pair.on_cpu->paths(), &pair.on_device->paths()}) paths->measure_casts = true;
    pair.run(pair.on_cpu, false);
    pair.run(pair.on_device, true);
    const HostNumbers numbers = numbers_on_host(pair.on_device->paths());
    ASSERT_EQ(numbers.casts.size(), 6u);
    for (std::size_t index = 0; index < 6; ++index) {
      const formats::Statistics& expected = pair.on_cpu->paths().measured[index / 2].casts[index % 2];
      EXPECT_EQ(numbers.casts[index].elements, expected.elements) << recipe << ' ' << index;
      EXPECT_EQ(numbers.casts[index].overflowed, expected.overflowed) << recipe << ' ' << index;
      EXPECT_EQ(numbers.casts[index].flushed, expected.flushed) << recipe << ' ' << index;
      EXPECT_NEAR(numbers.casts[index].relative_error(), expected.relative_error(), 1e-5) << recipe << ' ' << index;
    }
  }
}

TEST_F(Fp8OnTheDevice, WhatIsSavedIn8BitsIsThatOfTheCpu) {
  const at::Tensor matrix = uneven(37, 300, 7);
  EXPECT_TRUE(
      same_bits(restore_from_8_bits(save_in_8_bits(matrix.cuda())).cpu(), restore_from_8_bits(save_in_8_bits(matrix))));
}

}  // namespace
}  // namespace gnmr::nn
