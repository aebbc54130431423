// SPDX-License-Identifier: Apache-2.0
// Bugs of other training code, re-enacted in real layers over several steps, against slow arithmetic of its own.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "gnmr/lab/injection/fault_hook.h"
#include "gnmr/torch/switchable_linear.h"
#include "torch/tensor_testing.h"

namespace gnmr::lab {
namespace {

using nn::testing::builtin;
using nn::testing::normal;
using nn::testing::relative_difference;
using recipes::Operand;
using recipes::Product;

constexpr std::int64_t kBugFirst = 3;
constexpr std::int64_t kBugLast = 6;

/// The number of a format with so many bits behind the point, and such a smallest exponent and largest number, that is
/// closest: ties to even.
double nearest(double value, int bits, int lowest, double most) {
  if (value == 0) return 0;
  const int exponent = std::max(std::ilogb(value), lowest);
  const double unit = std::ldexp(1.0, exponent - bits);
  return std::clamp(std::nearbyint(value / unit) * unit, -most, most);
}
double e4m3(double value) { return nearest(value, 3, -6, 448); }
double e5m2(double value) { return nearest(value, 2, -14, 57344); }

at::Tensor each_element(const at::Tensor& matrix, const std::function<double(double)>& change) {
  at::Tensor result = matrix.detach().to(at::kDouble).clone();
  auto* const data = result.mutable_data_ptr<double>();
  for (std::int64_t i = 0; i < result.numel(); ++i) data[i] = change(data[i]);
  return result;
}

double magnitude_of(const at::Tensor& matrix) { return matrix.detach().abs().max().item<double>(); }

at::Tensor quantized(const at::Tensor& matrix, double (*round)(double), double scale) {
  return each_element(matrix, [=](double value) { return round(value / scale) * scale; });
}

PlannedFault bug(FaultKind kind, std::uint32_t layer) {
  return {.step_first = kBugFirst, .step_last = kBugLast, .steps = 1000, .layer = layer, .kind = kind};
}

/// Layers whose steps are taken by hand. Weights, inputs and gradients are other ones in each step.
class Layers {
 public:
  Layers(const std::string& recipe, std::uint32_t count, nn::LowPathHook& hook) : layers_(count, nullptr) {
    for (std::uint32_t index = 0; index < count; ++index) {
      layers_[index] = nn::SwitchableLinear(24, 16);
      nn::LinearPaths& paths = layers_[index]->paths();
      paths.recipe = builtin(recipe);
      paths.clock = clock_;
      paths.layer = index;
      paths.hook = &hook;
      paths.low.fill(true);
    }
  }

  static at::Tensor input(std::int64_t step, std::uint32_t layer) {
    return normal({32, 24}, 100 + static_cast<std::uint64_t>(step)) * std::pow(4.0, layer);
  }
  static at::Tensor weight(std::int64_t step, std::uint32_t layer) {
    return normal({16, 24}, 200 + static_cast<std::uint64_t>(step)) * (0.1 + 0.05 * static_cast<double>(step)) *
           std::pow(2.0, layer);
  }
  static at::Tensor gradient(std::int64_t step, std::uint32_t layer) {
    return normal({32, 16}, 300 + static_cast<std::uint64_t>(step)) * std::pow(3.0, static_cast<double>(step)) *
           std::pow(8.0, layer) * 1e-4;
  }

  /// Forward of all layers in their order and backward in the other one.
  void step(std::int64_t number) {
    clock_->step = number;
    results.clear();
    inputs.clear();
    for (std::uint32_t index = 0; index < layers_.size(); ++index) {
      nn::SwitchableLinear& layer = layers_[index];
      layer->paths().begin_step();
      layer->weight = weight(number, index).requires_grad_();
      inputs.push_back(input(number, index).requires_grad_());
      results.push_back(layer->forward(inputs.back()));
    }
    for (std::uint32_t index = static_cast<std::uint32_t>(layers_.size()); index-- > 0;) {
      results[index].backward(gradient(number, index));
    }
    for (nn::SwitchableLinear& layer : layers_) layer->paths().end_step();
  }

  std::vector<at::Tensor> results;
  std::vector<at::Tensor> inputs;

 private:
  std::shared_ptr<nn::StepClock> clock_ = std::make_shared<nn::StepClock>();
  std::vector<nn::SwitchableLinear> layers_;
};

TEST(ReenactedBugs, ACachedWeightKeepsItsFp8DataAndGetsTheNewScale) {
  const PlannedFault fault = bug(FaultKind::cached_weight, 0);
  FaultHook hook({&fault, 1}, {.strength = 64, .seed = 1});
  Layers layers("fp8-tensorwise", 1, hook);
  for (std::int64_t step = 1; step <= kBugLast + 1; ++step) {
    layers.step(step);
    const bool is_faulty = step >= kBugFirst && step <= kBugLast;
    const at::Tensor weight = Layers::weight(step, 0);
    const at::Tensor kept = Layers::weight(is_faulty ? kBugFirst : step, 0);
    const at::Tensor codes = each_element(kept, [&](double value) { return e4m3(value / (magnitude_of(kept) / 448)); });
    const at::Tensor used = codes * (magnitude_of(weight) / 448);
    const at::Tensor input = Layers::input(step, 0);
    const at::Tensor low_input = quantized(input, e4m3, magnitude_of(input) / 448);
    EXPECT_LT(relative_difference(layers.results[0], at::matmul(low_input, used.t())), 2e-3) << step;
    const at::Tensor gradient = Layers::gradient(step, 0);
    const at::Tensor low_gradient = quantized(gradient, e5m2, magnitude_of(gradient) / 57344);
    EXPECT_LT(relative_difference(layers.inputs[0].grad(), at::matmul(low_gradient, used)), 2e-3) << step;
    const double off =
        relative_difference(layers.results[0], at::matmul(input.to(at::kDouble), weight.t().to(at::kDouble)));
    EXPECT_EQ(off > 0.5, is_faulty && step > kBugFirst) << step << ": " << off;
  }
}

TEST(ReenactedBugs, ACachedWeightIsTheSameAfterACheckpoint) {
  const PlannedFault fault = bug(FaultKind::cached_weight, 0);
  FaultHook whole({&fault, 1}, {.strength = 64, .seed = 1});
  Layers layers("fp8-tensorwise", 1, whole);
  for (std::int64_t step = 1; step <= 4; ++step) layers.step(step);
  FaultHook resumed({&fault, 1}, {.strength = 64, .seed = 1});
  resumed.restore(whole.save());
  EXPECT_EQ(resumed.save(), whole.save());
  Layers others("fp8-tensorwise", 1, resumed);
  layers.step(5);
  others.step(5);
  EXPECT_TRUE(at::equal(layers.results[0], others.results[0]));
}

/// The scale of delayed scaling: the largest of all amaxes so far, of fewer than the history has.
double scale_of(const std::vector<double>& history, double most) {
  return *std::max_element(history.begin(), history.end()) / most;
}

TEST(ReenactedBugs, AMissedAmaxLeavesTheGradientsScaleAsAtTheStart) {
  const PlannedFault fault = bug(FaultKind::missed_amax, 0);
  FaultHook hook({&fault, 1}, {.strength = 64, .seed = 1});
  Layers layers("fp8-delayed", 1, hook);
  std::vector<double> gradients;
  std::vector<double> weights;
  for (std::int64_t step = 1; step <= kBugLast + 2; ++step) {
    layers.step(step);
    const at::Tensor gradient = Layers::gradient(step, 0);
    const at::Tensor weight = Layers::weight(step, 0);
    if (step > 1) {
      const at::Tensor low = at::matmul(quantized(gradient, e5m2, scale_of(gradients, 57344)),
                                        quantized(weight, e4m3, scale_of(weights, 448)));
      EXPECT_LT(relative_difference(layers.inputs[0].grad(), low), 2e-3) << step;
    }
    const bool is_faulty = step >= kBugFirst && step <= kBugLast;
    gradients.push_back(is_faulty ? 57344 : magnitude_of(gradient));
    EXPECT_EQ(is_faulty, scale_of(gradients, 57344) == 1 && step <= kBugLast);
    weights.push_back(magnitude_of(weight));
  }
}

TEST(ReenactedBugs, AWrongAmaxIsThatOfTheLayerBesideIt) {
  const PlannedFault fault = bug(FaultKind::wrong_amax, 1);
  FaultHook hook({&fault, 1}, {.strength = 64, .seed = 1});
  Layers layers("fp8-delayed", 3, hook);
  std::vector<double> inputs;
  std::vector<double> weights;
  std::vector<double> gradients;
  for (std::int64_t step = 1; step <= 20 + kBugLast; ++step) {
    layers.step(step);
    const bool is_faulty = step >= kBugFirst && step <= kBugLast;
    if (step > 1 && step <= kBugLast) {
      const at::Tensor low = at::matmul(quantized(Layers::input(step, 1), e4m3, scale_of(inputs, 448)),
                                        quantized(Layers::weight(step, 1), e4m3, scale_of(weights, 448)).t());
      EXPECT_LT(relative_difference(layers.results[1], low), 2e-3) << step;
      const at::Tensor low_gradient = at::matmul(quantized(Layers::gradient(step, 1), e5m2, scale_of(gradients, 57344)),
                                                 quantized(Layers::weight(step, 1), e4m3, scale_of(weights, 448)));
      EXPECT_LT(relative_difference(layers.inputs[1].grad(), low_gradient), 2e-3) << step;
    }
    inputs.push_back(magnitude_of(Layers::input(step, is_faulty ? 0 : 1)));
    weights.push_back(magnitude_of(Layers::weight(step, is_faulty ? 0 : 1)));
    gradients.push_back(magnitude_of(Layers::gradient(step, is_faulty ? 2 : 1)));
  }
}

}  // namespace
}  // namespace gnmr::lab
