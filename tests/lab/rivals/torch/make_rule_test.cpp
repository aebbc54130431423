// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/rivals/make_rule.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "gnmr/core/error.h"
#include "gnmr/lab/rivals/rule_options.h"
#include "gnmr/torch/squared_norm.h"
#include "lab/rivals/random_norms.h"

namespace gnmr::lab {
namespace {

using train::GradientAction;
using train::GradientRule;

using Tensors = std::vector<at::Tensor>;

/// A tensor whose elements are random, in the order of a loop.
at::Tensor random_tensor(RandomNorms& random, std::vector<std::int64_t> shape, at::ScalarType type) {
  at::Tensor tensor = at::empty(shape, at::kDouble);
  double* const data = tensor.data_ptr<double>();
  for (std::int64_t i = 0; i < tensor.numel(); ++i) data[i] = (random.share() < 0.5 ? -0.01 : 0.01) * random.norm();
  return tensor.to(type);
}

/// Gradients of a small model; the third parameter has none.
Tensors random_gradients(RandomNorms& random, at::ScalarType type = at::kFloat) {
  Tensors gradients;
  gradients.push_back(random_tensor(random, {4, 6}, type));
  gradients.push_back(random_tensor(random, {9}, type));
  gradients.emplace_back();
  gradients.push_back(random_tensor(random, {5, 8}, type).t());
  return gradients;
}

Tensors copy_of(const Tensors& tensors) {
  Tensors copies;
  for (const at::Tensor& tensor : tensors) copies.push_back(tensor.defined() ? tensor.clone() : tensor);
  return copies;
}

GradientAction act(GradientRule& rule, const Tensors& gradients, double loss = 2) {
  const std::vector<double> squares = nn::squared_norms(gradients);
  return rule.act({.step = 1, .loss = loss, .squares = squares, .gradients = gradients});
}

bool are_equal(const GradientAction& one, const GradientAction& other) {
  return one.skip == other.skip && one.coefficients == other.coefficients &&
         one.replaces_clipping == other.replaces_clipping && one.gradients_changed == other.gradients_changed;
}

bool are_equal(const Tensors& one, const Tensors& other) {
  for (std::size_t i = 0; i < one.size(); ++i) {
    if (one[i].defined() && !one[i].equal(other[i])) return false;
  }
  return true;
}

TEST(MakeRule, WrongTextsAreErrors) {
  EXPECT_THROW(make_rule("none"), Error);
  EXPECT_THROW(make_rule("zclip:gamma=1"), Error);
}

TEST(MakeRule, StepsThatAreNotFiniteAreLeftOutUntouchedAndForgotten) {
  for (const std::string_view name : rule_names()) {
    const auto rule = make_rule(name);
    RandomNorms random(1);
    for (int step = 0; step < 120; ++step) {
      const std::string before = rule->save();
      for (const double element : {std::nan(""), std::numeric_limits<double>::infinity()}) {
        Tensors gradients = random_gradients(random);
        gradients[1][3] = element;
        const Tensors originals = copy_of({gradients[0], gradients[3]});
        EXPECT_TRUE(act(*rule, gradients).skip) << name;
        EXPECT_TRUE(gradients[0].equal(originals[0]) && gradients[3].equal(originals[1]));
      }
      ASSERT_EQ(rule->save(), before) << name;
      act(*rule, random_gradients(random));
    }
  }
}

TEST(MakeRule, GoesOnBitForBitFromItsMemory) {
  for (const std::string_view name : rule_names()) {
    for (const int steps_before : {0, 10, 110}) {
      const auto rule = make_rule(name);
      RandomNorms random(2);
      for (int step = 0; step < steps_before; ++step) act(*rule, random_gradients(random), random.share());
      const auto resumed = make_rule(name);
      resumed->restore(rule->save());
      for (int step = 0; step < 60; ++step) {
        const Tensors one = random_gradients(random);
        const Tensors other = copy_of(one);
        const double loss = random.share();
        ASSERT_TRUE(are_equal(act(*rule, one, loss), act(*resumed, other, loss))) << name;
        ASSERT_TRUE(are_equal(one, other)) << name;
        ASSERT_EQ(rule->save(), resumed->save()) << name;
      }
    }
  }
}

TEST(MakeRule, MemoryOfAnotherRuleIsAnError) {
  for (const std::string_view name : rule_names()) {
    for (const std::string_view other : rule_names()) {
      if (name == other) continue;
      EXPECT_THROW(make_rule(name)->restore(make_rule(other)->save()), Error) << name << ' ' << other;
    }
    EXPECT_THROW(make_rule(name)->restore(""), Error);
  }
}

TEST(MakeRule, OnlyStableSpamChangesElements) {
  for (const std::string_view name : rule_names()) {
    const auto rule = make_rule(name);
    RandomNorms random(3);
    bool changed = false;
    for (int step = 0; step < 130; ++step) {
      const Tensors gradients = random_gradients(random);
      const Tensors before = copy_of(gradients);
      const GradientAction action = act(*rule, gradients);
      EXPECT_EQ(action.gradients_changed, !are_equal(gradients, before)) << name;
      changed = changed || action.gradients_changed;
    }
    EXPECT_EQ(changed, name == "stable-spam");
  }
}

TEST(MakeRule, ZClipScalesAllGradientsAndReplacesClipping) {
  const auto rule = make_rule("zclip:warmup=2,max_norm=0");
  const Tensors gradients{at::tensor({3.0F}), at::tensor({4.0F})};
  for (int step = 0; step < 3; ++step) {
    const GradientAction action = act(*rule, gradients);
    EXPECT_TRUE(action.replaces_clipping);
    EXPECT_TRUE(action.coefficients.empty());
  }
  const GradientAction action = act(*rule, {at::tensor({30.0F}), at::tensor({40.0F})});
  ASSERT_EQ(action.coefficients.size(), 2U);
  EXPECT_NEAR(action.coefficients[0], 0.1, 1e-6);
  EXPECT_EQ(action.coefficients[0], action.coefficients[1]);
}

TEST(MakeRule, AdaGcTakesNormsNotSquares) {
  const auto rule = make_rule("adagc:warmup=1");
  const GradientAction action = act(*rule, {at::tensor({3.0F}), at::tensor({4.0F})});
  EXPECT_TRUE(action.replaces_clipping);
  EXPECT_NEAR(action.coefficients.at(0), 0.2, 1e-12);
  EXPECT_NEAR(act(*rule, {at::tensor({1.0F}), at::tensor({0.8F})}).coefficients.at(0), 1.05 * 0.6, 1e-12);
}

TEST(MakeRule, OlmoSkipLeavesClippingToTheTrainer) {
  const auto rule = make_rule("olmo-skip:window=6");
  RandomNorms random(4);
  for (int step = 0; step < 6; ++step) {
    const GradientAction action = act(*rule, {at::tensor({3.0F + 0.1F * static_cast<float>(step % 2)})}, 2);
    EXPECT_FALSE(action.skip);
    EXPECT_FALSE(action.replaces_clipping);
    EXPECT_TRUE(action.coefficients.empty());
  }
  EXPECT_TRUE(act(*rule, {at::tensor({30.0F})}, 2).skip);
  EXPECT_TRUE(act(*rule, {at::tensor({3.0F})}, 20).skip);
}

/// Stable-SPAM for one tensor, on doubles in a plain loop; the running means as the paper writes them.
struct SlowTensor {
  int steps = 0;
  double largest_mean = 0;
  double norm_mean = 0;
  double square_mean = 0;

  std::vector<double> apply(const at::Tensor& gradient) {
    const at::Tensor flat = gradient.to(at::kDouble).reshape({-1});
    std::vector<double> elements(flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel());
    ++steps;
    double largest = 0;
    for (const double element : elements) largest = std::max(largest, std::abs(element));
    largest_mean = 0.999 * largest_mean + 0.001 * largest;
    const double threshold = largest_mean / (1 - std::pow(0.999, steps));
    double square = 0;
    for (double& element : elements) {
      if (std::abs(element) > threshold) element = element / largest * threshold;
      square += element * element;
    }
    norm_mean = 0.7 * norm_mean + 0.3 * std::sqrt(square);
    square_mean = 0.9 * square_mean + 0.1 * square;
    const double scale = norm_mean / (1 - std::pow(0.7, steps)) / std::sqrt(square_mean / (1 - std::pow(0.9, steps)));
    for (double& element : elements) element *= scale / std::sqrt(square);
    return elements;
  }
};

TEST(MakeRule, StableSpamChangesTensorsOfAnyTypeAndLayout) {
  for (const auto& [type, tolerance] :
       {std::pair(at::kFloat, 1e-5), std::pair(at::kDouble, 1e-5), std::pair(at::kBFloat16, 1e-2)}) {
    const auto rule = make_rule("stable-spam");
    std::vector<SlowTensor> slow(4);
    RandomNorms random(6);
    for (int step = 0; step < 50; ++step) {
      const Tensors gradients = random_gradients(random, type);
      std::vector<std::vector<double>> expected(4);
      for (const std::size_t i : {0U, 1U, 3U}) expected[i] = slow[i].apply(gradients[i]);
      const GradientAction action = act(*rule, gradients);
      EXPECT_TRUE(action.replaces_clipping);
      ASSERT_EQ(action.coefficients.size(), 4U);
      EXPECT_EQ(action.coefficients[2], 1.0);
      for (const std::size_t i : {0U, 1U, 3U}) {
        const at::Tensor flat = gradients[i].to(at::kDouble).reshape({-1}) * action.coefficients[i];
        for (std::int64_t j = 0; j < flat.numel(); ++j) {
          const double element = expected[i][static_cast<std::size_t>(j)];
          ASSERT_NEAR(flat[j].item<double>(), element, tolerance * std::abs(element)) << type << ' ' << step;
        }
      }
    }
  }
}

}  // namespace
}  // namespace gnmr::lab
