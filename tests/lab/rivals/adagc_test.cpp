// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/rivals/adagc.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "lab/rivals/memory_checks.h"
#include "lab/rivals/random_norms.h"

namespace gnmr::lab {
namespace {

constexpr double kAdaGcNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kAdaGcInfinity = std::numeric_limits<double>::infinity();

using Norms = std::vector<double>;

/// From the paper's formulas, for one tensor: all its clipped norms are kept and summed with their weights.
class SlowTensor {
 public:
  explicit SlowTensor(const AdaGcOptions& options) : options_(options) {}

  void warm_up(double clipped) { warmup_.push_back(clipped); }

  double clip(double norm) {
    double gamma = *std::min_element(warmup_.begin(), warmup_.end()) * std::pow(options_.beta, clipped_.size());
    for (std::size_t age = 0; age < clipped_.size(); ++age) {
      gamma += (1 - options_.beta) * std::pow(options_.beta, age) * clipped_[clipped_.size() - 1 - age];
    }
    const double h = std::min(options_.lambda_rel * gamma / norm, 1.0);
    clipped_.push_back(h * norm);
    return h;
  }

 private:
  AdaGcOptions options_;
  Norms warmup_;
  Norms clipped_;
};

TEST(AdaGc, HasThePublishedDefaults) {
  const AdaGcOptions options;
  EXPECT_EQ(options.lambda_rel, 1.05);
  EXPECT_EQ(options.beta, 0.98);
  EXPECT_EQ(options.warmup, 100);
  EXPECT_EQ(options.lambda_abs, 1.0);
}

TEST(AdaGc, ClipsAsWorkedOutByHand) {
  AdaGc rule({.warmup = 2});
  // The norm of all is 5: everything times 0.2, references 0.6 and 0.8.
  Norms factors = rule.observe(Norms{3, 4}).value();
  EXPECT_NEAR(factors[0], 0.2, 1e-15);
  EXPECT_NEAR(factors[1], 0.2, 1e-15);
  // The norm of all is below 1; the smaller ones stay: references 0.3 and 0.8.
  EXPECT_EQ(rule.observe(Norms{0.3, 0.9}), (Norms{1, 1}));
  // Allowed are 0.315 and 0.84; references 0.98 * 0.3 + 0.02 * 0.315 = 0.3003 and 0.98 * 0.8 + 0.02 * 0.5 = 0.794.
  factors = rule.observe(Norms{0.6, 0.5}).value();
  EXPECT_NEAR(factors[0], 0.525, 1e-15);
  EXPECT_EQ(factors[1], 1);
  // Allowed are 0.315315 and 0.8337.
  factors = rule.observe(Norms{1, 1}).value();
  EXPECT_NEAR(factors[0], 0.315315, 1e-15);
  EXPECT_NEAR(factors[1], 0.8337, 1e-15);
}

TEST(AdaGc, EqualsTheSlowReference) {
  const AdaGcOptions options;
  AdaGc rule(options);
  std::vector<SlowTensor> slow(5, SlowTensor(options));
  RandomNorms random(11);
  int clipped = 0;
  for (int step = 1; step <= 400; ++step) {
    const Norms norms = random.norms(slow.size());
    const Norms factors = rule.observe(norms).value();
    double square = 0;
    for (const double norm : norms) square += std::pow(norm, 2);
    const double global = std::min(options.lambda_abs / std::sqrt(square), 1.0);
    for (std::size_t tensor = 0; tensor < slow.size(); ++tensor) {
      double expected = global;
      if (step <= options.warmup) {
        slow[tensor].warm_up(global * norms[tensor]);
      } else {
        expected = slow[tensor].clip(norms[tensor]);
      }
      ASSERT_NEAR(factors[tensor], expected, 1e-11) << step;
      clipped += expected < 1 ? 1 : 0;
    }
  }
  EXPECT_GT(clipped, 100);
}

TEST(AdaGc, NormsThatDoNotChangeAreNeverClippedAndASpikeOfOneTensorIs) {
  AdaGc rule({});
  const Norms usual{0.1, 0.3, 0.7};
  for (int step = 0; step < 1000; ++step) ASSERT_EQ(rule.observe(usual), (Norms{1, 1, 1}));
  const Norms factors = rule.observe(Norms{0.1, 30, 0.7}).value();
  EXPECT_EQ(factors[0], 1);
  EXPECT_NEAR(factors[1], 1.05 * 0.3 / 30, 1e-12);
  EXPECT_EQ(factors[2], 1);
}

TEST(AdaGc, ATensorWithoutGradientIsPassedOver) {
  AdaGc rule({.warmup = 2});
  rule.observe(Norms{0.5, 0});
  rule.observe(Norms{0, 0});
  // Were the 0 a smallest norm, the first tensor would not move any more; the second is seen for the first time.
  EXPECT_EQ(rule.observe(Norms{0.5, 7}), (Norms{1, 1}));
  EXPECT_EQ(rule.observe(Norms{0, 0}), (Norms{1, 1}));
  EXPECT_NEAR(rule.observe(Norms{0.5, 14}).value()[1], 1.05 * 7 / 14, 1e-15);
}

TEST(AdaGc, NormsThatAreNotFiniteAreRefusedAndForgotten) {
  AdaGc rule({.warmup = 3});
  for (int step = 0; step < 10; ++step) {
    const std::string before = rule.save();
    for (const double norm : {kAdaGcNan, kAdaGcInfinity}) EXPECT_FALSE(rule.observe(Norms{0.1, norm}).has_value());
    ASSERT_EQ(rule.save(), before) << step;
    rule.observe(Norms{0.1, 0.2});
  }
}

TEST(AdaGc, AnotherNumberOfTensorsIsAnError) {
  AdaGc rule({});
  rule.observe(Norms{1, 2, 3});
  try {
    rule.observe(Norms{1, 2});
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "[adagc] expected 3 norms, got 2");
  }
}

TEST(AdaGc, GoesOnBitForBitFromItsMemory) {
  for (const int steps_before : {0, 50, 100, 130}) {
    RandomNorms random(5);
    AdaGc rule({});
    for (int step = 0; step < steps_before; ++step) rule.observe(random.norms(4));
    AdaGc resumed({});
    resumed.restore(rule.save());
    for (int step = 0; step < 120; ++step) {
      const Norms norms = random.norms(4);
      ASSERT_EQ(rule.observe(norms), resumed.observe(norms));
      ASSERT_EQ(rule.save(), resumed.save());
    }
  }
}

TEST(AdaGc, MemoryThatIsNotItsOwnIsRefused) {
  AdaGc rule({});
  rule.observe(Norms{1, 2, 3});
  expect_foreign_memory_is_refused(rule);
}

}  // namespace
}  // namespace gnmr::lab
