// SPDX-License-Identifier: Apache-2.0
#include "gnmr/train/optimizer.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "gnmr/core/error.h"
#include "io/temporary_folder.h"

namespace gnmr::train {
namespace {

using gnmr::test::error_of;

at::Tensor random_tensor(at::IntArrayRef shape, std::uint64_t seed) {
  at::Generator generator = at::detail::createCPUGenerator(seed);
  return at::randn(shape, generator);
}

std::vector<OptimizedParameter> two_parameters() {
  return {{"layers.0.up.weight", random_tensor({37, 19}, 1).set_requires_grad(true), true},
          {"norm.weight", random_tensor({19}, 2).set_requires_grad(true), false}};
}

void set_gradients(const std::vector<OptimizedParameter>& parameters, std::uint64_t seed) {
  for (const OptimizedParameter& parameter : parameters) {
    parameter.tensor.mutable_grad() = random_tensor(parameter.tensor.sizes(), ++seed);
  }
}

/// AdamW as its paper has it, one element at a time in double precision.
struct NaiveAdamW {
  AdamWSettings settings;
  bool decays;
  std::vector<double> value;
  std::vector<double> mean = std::vector<double>(value.size());
  std::vector<double> square = std::vector<double>(value.size());
  int steps = 0;

  void step(double rate, const at::Tensor& gradient, double coefficient) {
    ++steps;
    const at::Tensor flat = gradient.flatten();
    for (std::size_t i = 0; i < value.size(); ++i) {
      const double g = static_cast<double>(flat[static_cast<std::int64_t>(i)].item<float>()) * coefficient;
      mean[i] = settings.beta1 * mean[i] + (1 - settings.beta1) * g;
      square[i] = settings.beta2 * square[i] + (1 - settings.beta2) * g * g;
      const double unbiased_mean = mean[i] / (1 - std::pow(settings.beta1, steps));
      const double unbiased_square = square[i] / (1 - std::pow(settings.beta2, steps));
      if (decays) value[i] -= rate * settings.weight_decay * value[i];
      value[i] -= rate * unbiased_mean / (std::sqrt(unbiased_square) + settings.epsilon);
    }
  }
};

NaiveAdamW naive_of(const OptimizedParameter& parameter, const AdamWSettings& settings) {
  const at::Tensor flat = parameter.tensor.detach().flatten().to(at::kDouble);
  return {settings, parameter.decays, {flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel()}};
}

double largest_difference(const at::Tensor& tensor, const std::vector<double>& expected) {
  const at::Tensor flat = tensor.detach().flatten().to(at::kDouble);
  double largest = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, std::abs(flat.const_data_ptr<double>()[i] - expected[i]));
  }
  return largest;
}

TEST(AdamW, AgreesWithTheFormula) {
  const AdamWSettings settings{.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};
  AdamW optimizer(two_parameters(), settings);
  std::vector<NaiveAdamW> naive;
  for (const OptimizedParameter& parameter : optimizer.parameters()) naive.push_back(naive_of(parameter, settings));
  for (std::uint64_t step = 1; step <= 30; ++step) {
    set_gradients(optimizer.parameters(), 100 * step);
    const double rate = 0.01 / static_cast<double>(step);
    const double coefficient = step % 3 == 0 ? 0.37 : 1;
    for (std::size_t i = 0; i < naive.size(); ++i) {
      naive[i].step(rate, optimizer.parameters()[i].tensor.grad(), coefficient);
    }
    optimizer.step(rate, coefficient);
  }
  for (std::size_t i = 0; i < naive.size(); ++i) {
    // Thirty updates in float32 of values about 1.
    EXPECT_LT(largest_difference(optimizer.parameters()[i].tensor, naive[i].value), 2e-6);
    EXPECT_LT(largest_difference(optimizer.state()[3 * i].second, naive[i].mean), 1e-6);
    EXPECT_LT(largest_difference(optimizer.state()[3 * i + 1].second, naive[i].square), 1e-6);
    EXPECT_EQ(optimizer.state()[3 * i + 2].second.item<float>(), 30);
  }
}

// What the trainer relies on, whatever torch does in other versions.
TEST(AdamW, TheClipCoefficientIsWrittenBackIntoGradients) {
  AdamW optimizer(two_parameters(), {});
  set_gradients(optimizer.parameters(), 3);
  const at::Tensor before = optimizer.parameters()[0].tensor.grad().clone();
  optimizer.step(0.01);
  EXPECT_TRUE(at::equal(optimizer.parameters()[0].tensor.grad(), before));
  optimizer.step(0.01, 0.25);
  EXPECT_TRUE(at::equal(optimizer.parameters()[0].tensor.grad(), before * 0.25));
}

TEST(AdamW, AFoldedCoefficientIsAClippedGradient) {
  AdamW folded(two_parameters(), {});
  AdamW clipped(two_parameters(), {});
  set_gradients(folded.parameters(), 3);
  set_gradients(clipped.parameters(), 3);
  for (const OptimizedParameter& parameter : clipped.parameters()) parameter.tensor.mutable_grad().mul_(0.25);
  folded.step(0.01, 0.25);
  clipped.step(0.01);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(at::equal(folded.parameters()[i].tensor, clipped.parameters()[i].tensor));
  }
  // A norm beyond float's range is clipped too.
  EXPECT_NO_THROW(folded.step(0.01, 1e-45));
  EXPECT_TRUE(at::isfinite(folded.parameters()[0].tensor).all().item<bool>());
  EXPECT_THROW(folded.step(0.01, 0), Error);
  EXPECT_THROW(folded.step(0.01, std::nan("")), Error);
  EXPECT_THROW(folded.step(0.01, INFINITY), Error);
}

TEST(AdamW, RepeatsBitForBit) {
  const auto train = [] {
    AdamW optimizer({{"w", random_tensor({700, 301}, 1).set_requires_grad(true), true}}, {});
    for (std::uint64_t step = 1; step <= 5; ++step) {
      set_gradients(optimizer.parameters(), step);
      optimizer.step(0.01, 0.3);
    }
    return optimizer.parameters()[0].tensor.detach().clone();
  };
  EXPECT_TRUE(at::equal(train(), train()));
}

TEST(AdamW, AParameterWithoutAGradientIsPassedOver) {
  AdamW optimizer(two_parameters(), {});
  set_gradients(optimizer.parameters(), 3);
  optimizer.parameters()[1].tensor.mutable_grad() = at::Tensor();
  const at::Tensor before = optimizer.parameters()[1].tensor.detach().clone();
  optimizer.step(0.01);
  EXPECT_TRUE(at::equal(optimizer.parameters()[1].tensor, before));
  EXPECT_EQ(optimizer.state()[2].second.item<float>(), 1);
  EXPECT_EQ(optimizer.state()[5].second.item<float>(), 0);
}

TEST(AdamW, AStateGoesOnBitForBit) {
  AdamW first(two_parameters(), {});
  for (std::uint64_t step = 1; step <= 3; ++step) {
    set_gradients(first.parameters(), step);
    first.step(0.01);
  }
  std::vector<OptimizedParameter> copies;
  for (const OptimizedParameter& parameter : first.parameters()) {
    copies.push_back({parameter.name, parameter.tensor.detach().clone().set_requires_grad(true), parameter.decays});
  }
  AdamW second(copies, {});
  models::NamedTensors saved;
  for (const auto& [name, tensor] : first.state()) saved.emplace_back(name, tensor.clone());
  second.load_state(saved);
  for (AdamW* optimizer : {&first, &second}) {
    set_gradients(optimizer->parameters(), 9);
    optimizer->step(0.01, 0.5);
  }
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(at::equal(first.parameters()[i].tensor, second.parameters()[i].tensor));
  }
}

TEST(AdamW, AStateThatDoesNotFitIsNamedAndChangesNothing) {
  AdamW optimizer(two_parameters(), {});
  models::NamedTensors state;
  for (const auto& [name, tensor] : optimizer.state()) state.emplace_back(name, tensor.clone().fill_(5));
  models::NamedTensors missing(state.begin(), state.end() - 1);
  EXPECT_EQ(error_of<Error>([&] { optimizer.load_state(missing); }), "[optimizer] the state has no `norm.weight.step`");
  models::NamedTensors reshaped = state;
  reshaped[3].second = at::zeros({4, 2});
  EXPECT_EQ(error_of<Error>([&] { optimizer.load_state(reshaped); }),
            "[optimizer] `norm.weight.exp_avg`: expected shape [19], got [4, 2]");
  models::NamedTensors more = state;
  more.emplace_back("other.step", at::zeros({}));
  EXPECT_EQ(error_of<Error>([&] { optimizer.load_state(more); }),
            "[optimizer] expected 6 tensors, got 7: some belong to no parameter");
  EXPECT_EQ(optimizer.state()[0].second.sum().item<float>(), 0);
  std::vector<OptimizedParameter> twice = two_parameters();
  twice[1].name = twice[0].name;
  EXPECT_NE(error_of<Error>([&] { AdamW(twice, {}); }), "");
}

TEST(AdamW, MatricesDecayNormsAndEmbeddingsDoNot) {
  EXPECT_TRUE(decays("layers.0.up.weight", at::zeros({2, 2})));
  EXPECT_TRUE(decays("experts.weight", at::zeros({2, 2, 2})));
  EXPECT_FALSE(decays("embed.weight", at::zeros({2, 2})));
  EXPECT_FALSE(decays("model.embed_tokens.weight", at::zeros({2, 2})));
  EXPECT_FALSE(decays("norm.weight", at::zeros({2})));
}

}  // namespace
}  // namespace gnmr::train
