// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/rivals/stable_spam.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "lab/rivals/memory_checks.h"
#include "lab/rivals/random_norms.h"

namespace gnmr::lab {
namespace {

constexpr double kSpamNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kSpamInfinity = std::numeric_limits<double>::infinity();

using Gradient = std::vector<double>;
using Gradients = std::vector<Gradient>;

double square_of(const Gradient& gradient) {
  double sum = 0;
  for (const double element : gradient) sum += element * element;
  return sum;
}

std::vector<double> squares_of(const Gradients& gradients) {
  std::vector<double> squares;
  for (const Gradient& gradient : gradients) squares.push_back(square_of(gradient));
  return squares;
}

/// Gradients in memory.
class PlainElements final : public GradientElements {
 public:
  explicit PlainElements(Gradients& gradients) : gradients_(gradients) {}

  double largest(std::size_t tensor) override {
    double result = 0;
    for (const double element : gradients_[tensor]) result = std::max(result, std::abs(element));
    return result;
  }

  double scale_above(std::size_t tensor, double threshold, double factor) override {
    for (double& element : gradients_[tensor]) {
      if (std::abs(element) > threshold) element *= factor;
    }
    return square_of(gradients_[tensor]);
  }

 private:
  Gradients& gradients_;
};

/// What the optimizer would see: clipped elements times the factors. Nothing where the step is left out.
Gradients apply(StableSpam& rule, Gradients gradients, const std::vector<char>& is_absent = {}) {
  PlainElements elements(gradients);
  const std::vector<double> squares = squares_of(gradients);
  const auto factors = rule.observe(squares, is_absent, elements);
  if (!factors) return {};
  for (std::size_t tensor = 0; tensor < gradients.size(); ++tensor) {
    for (double& element : gradients[tensor]) element *= (*factors)[tensor];
  }
  return gradients;
}

/// From the paper's formulas, for one tensor: every mean is a sum over all steps, divided by 1 - gamma^t.
class SlowSpamTensor {
 public:
  explicit SlowSpamTensor(const StableSpamOptions& options) : options_(options) {}

  Gradient apply(Gradient gradient) {
    double largest = 0;
    for (const double element : gradient) largest = std::max({largest, element, -element});
    largest_.push_back(largest);
    const double threshold = corrected(largest_, options_.gamma3);
    for (double& element : gradient) {
      if (element > threshold || element < -threshold) {
        element = element / largest * threshold;
        ++clipped;
      }
    }
    const double norm = std::sqrt(square_of(gradient));
    norms_.push_back(norm);
    squares_.push_back(std::pow(norm, 2));
    const double scale = corrected(norms_, options_.gamma1) / (std::sqrt(corrected(squares_, options_.gamma2)) + 1e-8);
    for (double& element : gradient) element = element / norm * scale;
    return gradient;
  }

  int clipped = 0;

 private:
  static double corrected(const std::vector<double>& values, double gamma) {
    double sum = 0;
    for (std::size_t age = 0; age < values.size(); ++age) {
      sum += (1 - gamma) * std::pow(gamma, age) * values[values.size() - 1 - age];
    }
    return sum / (1 - std::pow(gamma, values.size()));
  }

  StableSpamOptions options_;
  std::vector<double> largest_;
  std::vector<double> norms_;
  std::vector<double> squares_;
};

Gradients random_gradients(RandomNorms& random) {
  Gradients gradients;
  for (const std::size_t size : {3U, 20U, 7U}) {
    Gradient gradient;
    for (std::size_t i = 0; i < size; ++i) gradient.push_back((random.share() < 0.5 ? -0.01 : 0.01) * random.norm());
    gradients.push_back(std::move(gradient));
  }
  return gradients;
}

TEST(StableSpam, HasThePublishedDefaults) {
  const StableSpamOptions options;
  EXPECT_EQ(options.gamma1, 0.7);
  EXPECT_EQ(options.gamma2, 0.9);
  EXPECT_EQ(options.gamma3, 0.999);
}

TEST(StableSpam, ClipsAndNormalizesAsWorkedOutByHand) {
  StableSpam rule({.gamma1 = 0.5, .gamma2 = 0.5, .gamma3 = 0.5});
  // The first step is its own mean: nothing is clipped, the norm becomes 1.
  Gradient seen = apply(rule, {{3, -4}})[0];
  EXPECT_NEAR(seen[0], 0.6, 1e-8);
  EXPECT_NEAR(seen[1], -0.8, 1e-8);
  // Threshold (1 + 4) / 0.75 = 6.6667: 8 becomes 6.6667, 6 stays; norm sqrt(36 + 44.4444) = 8.96909. Means of norms
  // (1.25 + 4.484545) / 0.75 = 7.646060 and squares (6.25 + 40.22222) / 0.75 = 61.96296, its root 7.871656: scale
  // 0.971341.
  seen = apply(rule, {{6, -8}})[0];
  EXPECT_NEAR(seen[0], 6 / 8.96909 * 0.971341, 1e-6);
  EXPECT_NEAR(seen[1], -6.666667 / 8.96909 * 0.971341, 1e-6);
}

TEST(StableSpam, ElementsAboveTheThresholdKeepTheirProportion) {
  StableSpam rule({.gamma3 = 0.5});
  apply(rule, {{4, 1}});
  // Threshold 6.6667 again; 7 and 8 are above it.
  const Gradient seen = apply(rule, {{7, 8, 6}})[0];
  EXPECT_NEAR(seen[0] / seen[1], 7.0 / 8, 1e-12);
  EXPECT_NEAR(seen[2] / seen[1], 6 / 6.6666666666666667, 1e-12);
}

TEST(StableSpam, EqualsTheSlowReference) {
  for (const StableSpamOptions& options : {StableSpamOptions{}, StableSpamOptions{.gamma1 = 0.85, .gamma2 = 0.99999}}) {
    StableSpam rule(options);
    std::vector<SlowSpamTensor> slow(3, SlowSpamTensor(options));
    RandomNorms random(23);
    for (int step = 0; step < 300; ++step) {
      const Gradients gradients = random_gradients(random);
      const Gradients seen = apply(rule, gradients);
      for (std::size_t tensor = 0; tensor < 3; ++tensor) {
        const Gradient expected = slow[tensor].apply(gradients[tensor]);
        for (std::size_t i = 0; i < expected.size(); ++i) {
          // gamma2 loses five digits in the plain form, 1 - 0.99999^t.
          ASSERT_NEAR(seen[tensor][i], expected[i], 1e-9) << step;
        }
      }
    }
    EXPECT_GT(slow[1].clipped, 100);
  }
}

TEST(StableSpam, GradientsThatDoNotChangeAreNotClippedAndHaveTheNormOne) {
  StableSpam rule({});
  const Gradients usual{{0.1, -0.3, 0.2}, {0.7}};
  for (int step = 0; step < 1000; ++step) {
    Gradients gradients = usual;
    PlainElements elements(gradients);
    const auto factors = rule.observe(squares_of(usual), {}, elements);
    ASSERT_EQ(gradients, usual) << step;
    ASSERT_NEAR((*factors)[0] * std::sqrt(square_of(usual[0])), 1, 1e-6);
    ASSERT_NEAR((*factors)[1] * 0.7, 1, 1e-6);
  }
}

TEST(StableSpam, ASpikeIsClippedAndItsNormHeld) {
  StableSpam rule({});
  for (int step = 0; step < 100; ++step) apply(rule, {{1, 1, 1}});
  const Gradient seen = apply(rule, {{1, 1, 1000}})[0];
  // The threshold rises by 0.001 / (1 - 0.999^101) = 0.01041 of the excess: 11.4 instead of 1000.
  EXPECT_NEAR(seen[2] / seen[0], 11.4, 0.1);
  // Whatever a spike's size, (0.7 + 0.3 s) / sqrt(0.9 + 0.1 s^2) is at most sqrt(0.49 / 0.9 + 0.09 / 0.1) = 1.2019.
  EXPECT_LT(std::sqrt(square_of(seen)), 1.202);
}

TEST(StableSpam, ATensorWithoutGradientIsPassedOver) {
  StableSpam with_gaps({});
  StableSpam without({});
  for (int step = 1; step < 20; ++step) {
    const Gradient gradient{0.1 * step, 1};
    apply(with_gaps, {{}}, {1});
    EXPECT_EQ(apply(with_gaps, {gradient}, {0}), apply(without, {gradient}));
  }
}

TEST(StableSpam, AGradientOfZeroStaysZeroAndNextToZeroIsNotScaled) {
  StableSpam rule({});
  EXPECT_EQ(apply(rule, {{1e-40, 0}, {}}), (Gradients{{1e-40, 0}, {}}));
  EXPECT_EQ(apply(rule, {{0, 0}, {}}), (Gradients{{0, 0}, {}}));
  for (int step = 0; step < 3; ++step) {
    const Gradients seen = apply(rule, {{1, 2}, {}});
    for (const double element : seen[0]) EXPECT_TRUE(std::isfinite(element));
  }
}

TEST(StableSpam, GradientsThatAreNotFiniteAreRefusedUntouchedAndForgotten) {
  StableSpam rule({});
  for (int step = 0; step < 5; ++step) {
    const std::string before = rule.save();
    for (const double element : {kSpamNan, kSpamInfinity, -kSpamInfinity}) {
      Gradients gradients{{1, 1000}, {element}};
      PlainElements elements(gradients);
      EXPECT_FALSE(rule.observe(squares_of(gradients), {}, elements).has_value());
      EXPECT_EQ(gradients[0], (Gradient{1, 1000}));
    }
    ASSERT_EQ(rule.save(), before) << step;
    apply(rule, {{1, 2}, {3}});
  }
}

TEST(StableSpam, AnotherNumberOfTensorsIsAnError) {
  StableSpam rule({});
  apply(rule, {{1}, {2}});
  EXPECT_THROW(apply(rule, {{1}}), Error);
}

TEST(StableSpam, GoesOnBitForBitFromItsMemory) {
  RandomNorms random(5);
  StableSpam rule({});
  for (int step = 0; step < 40; ++step) apply(rule, random_gradients(random));
  StableSpam resumed({});
  resumed.restore(rule.save());
  for (int step = 0; step < 100; ++step) {
    const Gradients gradients = random_gradients(random);
    ASSERT_EQ(apply(rule, gradients), apply(resumed, gradients));
    ASSERT_EQ(rule.save(), resumed.save());
  }
}

TEST(StableSpam, MemoryThatIsNotItsOwnIsRefused) {
  StableSpam rule({});
  apply(rule, {{1, 2}, {3}});
  expect_foreign_memory_is_refused(rule);
}

}  // namespace
}  // namespace gnmr::lab
