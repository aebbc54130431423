// SPDX-License-Identifier: Apache-2.0
#include "gnmr/torch/switchable_linear.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <string>
#include <vector>

#include "gnmr/torch/squared_norm.h"
#include "torch/low_on_tensors.h"
#include "torch/tensor_testing.h"

namespace gnmr::nn {
namespace {

using testing::builtin;
using testing::normal;
using testing::relative_difference;
using testing::same_bits;

using Low = std::array<bool, kProductCount>;
constexpr Low kAllLow{true, true, true};
constexpr Low kAllHigh{false, false, false};

/// What one forward and backward gives.
struct Pass {
  at::Tensor output, input_gradient, weight_gradient, bias_gradient;
};

/// A layer with an input and a gradient of its output, always the same.
struct Bench {
  explicit Bench(bool with_bias = false, std::vector<std::int64_t> tokens = {150})
      : layer(131, 70, with_bias), input_shape(tokens), output_shape(tokens) {
    const at::NoGradGuard no_gradients;
    layer->weight.copy_(normal({70, 131}, 1) * 0.1);
    if (with_bias) layer->bias.copy_(normal({70}, 2));
    input_shape.push_back(131);
    output_shape.push_back(70);
    input = normal(input_shape, 3);
    input = input * at::exp2(at::randint(-3, 3, {131}));
    gradient = normal(output_shape, 4) * 1e-3;
  }

  void use(const std::string& recipe, const Low& low) {
    layer->paths().recipe = builtin(recipe);
    layer->paths().low = low;
  }

  Pass run() {
    const at::Tensor leaf = input.detach().clone().requires_grad_();
    layer->zero_grad();
    const at::Tensor output = layer->forward(leaf);
    output.backward(gradient);
    return {output.detach(), leaf.grad(), layer->weight.grad().clone(),
            layer->bias.defined() ? layer->bias.grad().clone() : at::Tensor()};
  }

  SwitchableLinear layer;
  std::vector<std::int64_t> input_shape, output_shape;
  at::Tensor input, gradient;
};

/// torch's own linear.
Pass plain(const Bench& bench) {
  const at::Tensor leaf = bench.input.detach().clone().requires_grad_();
  const at::Tensor weight = bench.layer->weight.detach().clone().requires_grad_();
  const at::Tensor bias =
      bench.layer->bias.defined() ? bench.layer->bias.detach().clone().requires_grad_() : at::Tensor();
  const at::Tensor output = at::linear(leaf, weight, bias);
  output.backward(bench.gradient);
  return {output.detach(), leaf.grad(), weight.grad(), bias.defined() ? bias.grad() : at::Tensor()};
}

/// By hand: operands are cast as the recipe says and multiplied in float32.
Pass by_hand(const Bench& bench, const std::string& recipe_name, const Low& low) {
  const auto recipe = builtin(recipe_name);
  const at::Tensor x = bench.input.reshape({-1, 131});
  const at::Tensor g = bench.gradient.reshape({-1, 70});
  const at::Tensor w = bench.layer->weight.detach();
  const auto operand = [&](Product product, std::size_t place, const at::Tensor& matrix, SumOver direction) {
    const auto& rule = recipe->rule(product, place);
    if (!low[static_cast<std::size_t>(product)] || !rule) return matrix;
    // Where nothing is remembered yet a delayed scale is the tensor's own.
    const float scale = finite_amax(matrix) / formats::layout_of(rule->format).max;
    return cast_operand(matrix, {.rule = *rule, .sum_over = direction, .delayed_scale = scale});
  };
  const at::Tensor y =
      operand(Product::forward, 0, x, SumOver::columns).mm(operand(Product::forward, 1, w, SumOver::columns).t());
  const at::Tensor dx = operand(Product::input_gradient, 0, g, SumOver::columns)
                            .mm(operand(Product::input_gradient, 1, w, SumOver::rows));
  const at::Tensor dw = operand(Product::weight_gradient, 0, g, SumOver::rows)
                            .t()
                            .mm(operand(Product::weight_gradient, 1, x, SumOver::rows));
  return {y.view(bench.output_shape), dx.view(bench.input_shape), dw, {}};
}

void expect_near(const Pass& found, const Pass& expected, const std::string& what) {
  EXPECT_LT(relative_difference(found.output, expected.output), 1e-6) << what;
  EXPECT_LT(relative_difference(found.input_gradient, expected.input_gradient), 1e-6) << what;
  EXPECT_LT(relative_difference(found.weight_gradient, expected.weight_gradient), 1e-6) << what;
}

TEST(SwitchableLinear, HighIsTorchsLinear) {
  for (const bool with_bias : {false, true}) {
    for (const std::vector<std::int64_t>& tokens : {std::vector<std::int64_t>{150}, {6, 25}, {2, 3, 5}}) {
      Bench bench(with_bias, tokens);
      const Pass expected = plain(bench);
      const Pass without = bench.run();
      EXPECT_TRUE(same_bits(without.output, expected.output)) << "without a recipe nothing is different";
      EXPECT_TRUE(same_bits(without.weight_gradient, expected.weight_gradient));
      for (const char* const recipe : {"fp8-delayed", "mxfp8", "nvfp4-hadamard"}) {
        bench.use(recipe, kAllHigh);
        const Pass high = bench.run();
        expect_near(high, expected, recipe);
        if (with_bias) {
          EXPECT_LT(relative_difference(high.bias_gradient, expected.bias_gradient), 1e-6);
        }
      }
    }
  }
}

TEST(SwitchableLinear, EachProductIsLowAloneAsByHand) {
  for (const std::string& recipe : recipes::recipe_names()) {
    if (recipe == "nvfp4-hadamard") continue;  // its seeds are its own
    for (int bits = 0; bits < 8; ++bits) {
      const Low low{(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0};
      Bench bench(false, {6, 25});
      bench.use(recipe, low);
      const Pass found = bench.run();
      const std::string what = recipe + " " + std::to_string(bits);
      expect_near(found, by_hand(bench, recipe, low), what);
      // And low is not high: the comparison above can tell.
      const Pass high = plain(bench);
      const double least = recipe == "bf16" ? 1e-4 : 1e-3;
      EXPECT_EQ(relative_difference(found.output, high.output) > least, low[0]) << what;
      EXPECT_EQ(relative_difference(found.input_gradient, high.input_gradient) > least, low[1]) << what;
      EXPECT_EQ(relative_difference(found.weight_gradient, high.weight_gradient) > least, low[2]) << what;
    }
  }
}

TEST(SwitchableLinear, SharedCastsGiveTheBitsOfSeparateOnes) {
  for (const std::string& recipe : recipes::recipe_names()) {
    Bench bench;
    bench.use(recipe, kAllLow);
    const Pass together = bench.run();
    bench.use(recipe, {true, false, false});
    EXPECT_TRUE(same_bits(bench.run().output, together.output)) << recipe;
    bench.use(recipe, {false, true, false});
    EXPECT_TRUE(same_bits(bench.run().input_gradient, together.input_gradient)) << recipe;
    bench.use(recipe, {false, false, true});
    EXPECT_TRUE(same_bits(bench.run().weight_gradient, together.weight_gradient)) << recipe;
  }
}

TEST(SwitchableLinear, WeightsThatAreCastAgainHaveTheBitsOfKeptOnes) {
  for (const std::string& recipe : recipes::recipe_names()) {
    Bench bench;
    bench.use(recipe, kAllLow);
    LinearPaths& paths = bench.layer->paths();
    paths.measure_casts = true;
    const Pass kept = bench.run();
    const auto seen = paths.measured;
    paths.begin_step();
    paths.keep_low_weight = false;
    const Pass again = bench.run();
    EXPECT_TRUE(same_bits(again.output, kept.output)) << recipe;
    EXPECT_TRUE(same_bits(again.input_gradient, kept.input_gradient)) << recipe;
    EXPECT_TRUE(same_bits(again.weight_gradient, kept.weight_gradient)) << recipe;
    for (std::size_t product = 0; product < kProductCount; ++product) {
      const formats::Statistics& weight = paths.measured[product].casts[1];
      EXPECT_EQ(weight.elements, seen[product].casts[1].elements) << recipe;
      EXPECT_EQ(weight.squared_error, seen[product].casts[1].squared_error) << recipe;
    }
  }
}

TEST(SwitchableLinear, OnlyWantedGradientsAreMade) {
  for (const Low& low : {kAllLow, kAllHigh}) {
    Bench bench(true);
    bench.use("fp8-delayed", low);
    const Pass all = bench.run();
    bench.layer->weight.set_requires_grad(false);
    bench.layer->zero_grad();
    const at::Tensor leaf = bench.input.detach().clone().requires_grad_();
    bench.layer->weight.mutable_grad().reset();
    bench.layer->forward(leaf).backward(bench.gradient);
    EXPECT_FALSE(bench.layer->weight.grad().defined());
    EXPECT_TRUE(same_bits(leaf.grad(), all.input_gradient));
    EXPECT_TRUE(same_bits(bench.layer->bias.grad(), all.bias_gradient));
    bench.layer->bias.set_requires_grad(false);
    EXPECT_FALSE(bench.layer->forward(bench.input).requires_grad());
    bench.layer->weight.set_requires_grad(true);
    bench.layer->forward(bench.input).backward(bench.gradient);
    EXPECT_TRUE(same_bits(bench.layer->weight.grad(), all.weight_gradient));
  }
}

TEST(SwitchableLinear, BackwardMayComeTwice) {
  for (const std::string& recipe : recipes::recipe_names()) {
    Bench bench;
    bench.use(recipe, kAllLow);
    const Pass once = bench.run();
    bench.layer->zero_grad();
    const at::Tensor leaf = bench.input.detach().clone().requires_grad_();
    const at::Tensor output = bench.layer->forward(leaf);
    output.backward(bench.gradient, /*retain_graph=*/true);
    EXPECT_TRUE(same_bits(leaf.grad(), once.input_gradient)) << recipe;
    output.backward(bench.gradient);
    EXPECT_TRUE(same_bits(leaf.grad(), once.input_gradient * 2)) << recipe;
    EXPECT_TRUE(same_bits(bench.layer->weight.grad(), once.weight_gradient * 2)) << recipe;
  }
}

TEST(SwitchableLinear, RandomNumbersFollowFromStepMicroBatchAndLayer) {
  Bench bench;
  bench.use("nvfp4-hadamard", kAllLow);
  const auto clock = std::make_shared<StepClock>();
  bench.layer->paths().clock = clock;
  const at::Tensor first = bench.run().weight_gradient;
  EXPECT_TRUE(same_bits(bench.run().weight_gradient, first));
  std::vector<at::Tensor> others;
  clock->step = 1;
  others.push_back(bench.run().weight_gradient);
  *clock = {.micro_batch = 1};
  others.push_back(bench.run().weight_gradient);
  *clock = {.seed = 1};
  others.push_back(bench.run().weight_gradient);
  *clock = {};
  bench.layer->paths().layer = 1;
  others.push_back(bench.run().weight_gradient);
  for (std::size_t a = 0; a < others.size(); ++a) {
    EXPECT_FALSE(same_bits(others[a], first)) << a;
    for (std::size_t b = 0; b < a; ++b) EXPECT_FALSE(same_bits(others[a], others[b])) << a << " " << b;
  }
}

TEST(SwitchableLinear, InputsMayWaitInEightBits) {
  for (const bool with_recipe : {false, true}) {
    Bench bench;
    if (with_recipe) bench.use("fp8-delayed", kAllHigh);
    bench.layer->paths().save_low = true;
    const Pass found = bench.run();
    const Pass high = plain(bench);
    EXPECT_LT(relative_difference(found.output, high.output), 1e-6) << "only backward sees the 8 bits";
    EXPECT_LT(relative_difference(found.input_gradient, high.input_gradient), 1e-6);
    const at::Tensor kept = restore_from_8_bits(save_in_8_bits(bench.input));
    EXPECT_LT(relative_difference(found.weight_gradient, bench.gradient.t().mm(kept)), 1e-6);
    EXPECT_GT(relative_difference(found.weight_gradient, high.weight_gradient), 1e-3);
    if (!with_recipe) continue;
    // A low weight-gradient casts what the 8 bits kept.
    bench.use("fp8-rowwise", kAllLow);
    const auto recipe = builtin("fp8-rowwise");
    const at::Tensor x =
        cast_operand(kept, {.rule = *recipe->rule(Product::weight_gradient, 1), .sum_over = SumOver::rows});
    const at::Tensor g =
        cast_operand(bench.gradient, {.rule = *recipe->rule(Product::weight_gradient, 0), .sum_over = SumOver::rows});
    EXPECT_LT(relative_difference(bench.run().weight_gradient, g.t().mm(x)), 1e-6);
  }
}

TEST(SwitchableLinear, MeasuresTheNormOfEachProductOverMicroBatches) {
  for (const Low& low : {kAllLow, kAllHigh}) {
    Bench bench;
    bench.use("fp8-rowwise", low);
    LinearPaths& paths = bench.layer->paths();
    paths.measure_products = true;
    paths.begin_step();
    std::array<double, kProductCount> expected{};
    for (std::uint64_t micro_batch = 0; micro_batch < 3; ++micro_batch) {
      const at::Tensor leaf = (bench.input * static_cast<double>(micro_batch + 1)).requires_grad_();
      const at::Tensor gradient = normal({150, 70}, 40 + micro_batch);
      const at::Tensor output = bench.layer->forward(leaf);
      const auto found = torch::autograd::grad({output}, {leaf, bench.layer->weight}, {gradient});
      expected[0] += squared_norm(gradient);
      expected[1] += squared_norm(found[0]);
      expected[2] += squared_norm(found[1]);
    }
    for (std::size_t product = 0; product < kProductCount; ++product) {
      EXPECT_TRUE(paths.measured[product].sampled);
      EXPECT_NEAR(paths.measured[product].squared_norm, expected[product], 1e-12 * expected[product]) << product;
    }
    paths.observing = false;
    bench.run();
    EXPECT_NEAR(paths.measured[0].squared_norm, expected[0], 1e-12 * expected[0]) << "evaluation measures nothing";
    paths.begin_step();
    EXPECT_EQ(paths.measured[0].squared_norm, 0);
    EXPECT_FALSE(paths.measured[0].sampled);
  }
}

TEST(SwitchableLinear, DelayedScalesAreThoseOfEarlierStepsWhateverThePath) {
  Bench low;
  Bench high;
  low.use("fp8-delayed", kAllLow);
  high.use("fp8-delayed", kAllHigh);
  for (Bench* const bench : {&low, &high}) {
    for (int step = 0; step < 3; ++step) {
      bench->layer->paths().begin_step();
      bench->run();
      bench->input = bench->input * 1.5;
      bench->run();
      bench->layer->paths().end_step();
    }
  }
  for (std::size_t product = 0; product < kProductCount; ++product) {
    for (std::size_t place = 0; place < 2; ++place) {
      const formats::DelayedState& ran_low = low.layer->paths().amax.delayed[product][place];
      const formats::DelayedState& ran_high = high.layer->paths().amax.delayed[product][place];
      EXPECT_EQ(ran_low.amax_history, ran_high.amax_history);
      ASSERT_EQ(ran_high.amax_history.size(), 3u);
      EXPECT_EQ(ran_low.observations, 3u);
      EXPECT_EQ(ran_low.scale, ran_high.scale);
    }
  }
  // The scale in force is that of the largest amax before this step, not of this step's.
  const float largest = high.layer->paths().amax.delayed[0][0].amax_history.back();
  EXPECT_FLOAT_EQ(largest, finite_amax(high.input)) << "each step saw both of its micro-batches";
  high.input = high.input * 8;
  high.layer->paths().low = {true, false, false};
  high.layer->paths().begin_step();
  const at::Tensor cast = cast_operand(
      high.input, {.rule = *builtin("fp8-delayed")->rule(Product::forward, 0), .delayed_scale = largest / 448});
  const auto& weight_rule = *builtin("fp8-delayed")->rule(Product::forward, 1);
  const at::Tensor weight = cast_operand(high.layer->weight.detach(),
                                         {.rule = weight_rule, .delayed_scale = finite_amax(high.layer->weight) / 448});
  EXPECT_LT(relative_difference(high.run().output, cast.mm(weight.t())), 1e-6);
  EXPECT_EQ(finite_amax(cast), largest) << "what is beyond the scale saturates";
}

TEST(SwitchableLinear, FlippingMovesNoParameter) {
  Bench bench(true);
  const void* const weight = bench.layer->weight.data_ptr();
  const void* const implementation = bench.layer->weight.unsafeGetTensorImpl();
  const at::Tensor before = bench.layer->weight.detach().clone();
  bench.use("fp8-deepseek", kAllLow);
  for (int flip = 0; flip < 4; ++flip) {
    bench.layer->paths().low.fill(flip % 2 == 0);
    bench.layer->paths().begin_step();
    bench.run();
    bench.layer->paths().end_step();
    EXPECT_EQ(bench.layer->weight.data_ptr(), weight);
    EXPECT_EQ(bench.layer->weight.unsafeGetTensorImpl(), implementation);
    EXPECT_TRUE(same_bits(bench.layer->weight.detach(), before));
    EXPECT_EQ(bench.layer->named_parameters().size(), 2u);
    EXPECT_EQ(bench.layer->buffers().size(), 0u);
  }
}

}  // namespace
}  // namespace gnmr::nn
