// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/rivals/zclip.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "lab/rivals/memory_checks.h"
#include "lab/rivals/random_norms.h"

namespace gnmr::lab {
namespace {

constexpr double kZClipNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kZClipInfinity = std::numeric_limits<double>::infinity();

/// From the paper's formulas: each statistic is a sum over all that was seen, with the weight that it has now.
class SlowZClip {
 public:
  explicit SlowZClip(const ZClipOptions& options) : options_(options) {}

  double observe(double norm) {
    double allowed = norm;
    if (static_cast<std::int64_t>(warmup_.size()) < options_.warmup) {
      warmup_.push_back(norm);
    } else {
      const double mu = mean();
      const double sigma = std::sqrt(variance());
      const double z_score = (norm - mu) / (sigma + 1e-6);
      if (z_score > options_.z) {
        double z_star = options_.z * options_.z / z_score;
        if (options_.clip_to == ZClipTo::mean) z_star = 0;
        if (options_.clip_to == ZClipTo::max) z_star = options_.z;
        allowed = mu + z_star * sigma;
        ++spikes;
      }
      seen_.push_back(allowed);
      means_.push_back(mean());
    }
    if (options_.max_norm > 0 && allowed > options_.max_norm) allowed = options_.max_norm;
    return allowed < norm ? allowed / (norm + 1e-6) : 1.0;
  }

  int spikes = 0;

 private:
  double first_mean() const {
    double sum = 0;
    for (const double norm : warmup_) sum += norm / static_cast<double>(warmup_.size());
    return sum;
  }

  double weighted(double first, const std::vector<double>& later) const {
    const double age = static_cast<double>(later.size());
    double sum = std::pow(options_.alpha, age) * first;
    for (std::size_t i = 0; i < later.size(); ++i) {
      sum += (1 - options_.alpha) * std::pow(options_.alpha, age - 1 - static_cast<double>(i)) * later[i];
    }
    return sum;
  }

  double mean() const { return weighted(first_mean(), seen_); }

  double variance() const {
    double first = 0;  // E[x^2] - E[x]^2
    for (const double norm : warmup_) first += norm * norm / static_cast<double>(warmup_.size());
    first -= first_mean() * first_mean();
    std::vector<double> squares;
    for (std::size_t i = 0; i < seen_.size(); ++i) squares.push_back(std::pow(seen_[i] - means_[i], 2));
    return weighted(first, squares);
  }

  ZClipOptions options_;
  std::vector<double> warmup_;
  std::vector<double> seen_;
  std::vector<double> means_;
};

TEST(ZClip, HasThePublishedDefaults) {
  const ZClipOptions options;
  EXPECT_EQ(options.alpha, 0.97);
  EXPECT_EQ(options.z, 2.5);
  EXPECT_EQ(options.warmup, 25);
  EXPECT_EQ(options.max_norm, 1.0);
  EXPECT_EQ(options.clip_to, ZClipTo::reciprocal);
}

TEST(ZClip, ClipsAsWorkedOutByHand) {
  ZClip rule({.warmup = 4, .max_norm = 0});
  for (const double norm : {1.0, 3.0, 1.0, 3.0}) EXPECT_EQ(rule.observe(norm), 1.0);
  // mean 2, deviation 1: 7 has the z-score 5, so that it is clipped to 2 + 6.25 / 5 = 3.25.
  EXPECT_NEAR(rule.observe(7).value(), 3.25 / 7, 1e-6);
  // mean 0.97 * 2 + 0.03 * 3.25 = 2.0375, variance 0.97 + 0.03 * 1.2125^2 = 1.0141047, deviation 1.0070276:
  // 4.5 has the z-score 2.445, 5 has 2.9418 and is clipped to 2.0375 + 6.25 / 2.9418 * 1.0070276 = 4.17696.
  ZClip other = rule;
  EXPECT_EQ(other.observe(4.5), 1.0);
  EXPECT_NEAR(rule.observe(5).value(), 4.17696 / 5, 1e-5);
}

TEST(ZClip, ClipsToTheMeanOrToTheLargestUsualNormWhereAsked) {
  ZClip to_mean({.warmup = 2, .max_norm = 0, .clip_to = ZClipTo::mean});
  ZClip to_max({.warmup = 2, .max_norm = 0, .clip_to = ZClipTo::max});
  for (ZClip* rule : {&to_mean, &to_max}) {
    rule->observe(1);
    rule->observe(3);
  }
  EXPECT_NEAR(to_mean.observe(7).value(), 2.0 / 7, 1e-6);
  EXPECT_NEAR(to_max.observe(7).value(), 4.5 / 7, 1e-6);
}

TEST(ZClip, LargestNormHoldsInEveryStepAndIsNotSeenByTheStatistics) {
  ZClip limited({.warmup = 2, .max_norm = 1.0});
  ZClip free({.warmup = 2, .max_norm = 0});
  for (const double norm : {3.0, 5.0, 4.0, 5.0}) {
    EXPECT_NEAR(limited.observe(norm).value(), 1 / norm, 1e-6);
    EXPECT_EQ(free.observe(norm), 1.0);
  }
  EXPECT_EQ(limited.save(), free.save());
  EXPECT_EQ(limited.observe(0.5), 1.0);
}

TEST(ZClip, EqualsTheSlowReference) {
  for (const ZClipTo clip_to : {ZClipTo::reciprocal, ZClipTo::mean, ZClipTo::max}) {
    for (const double max_norm : {0.0, 1.0}) {
      const ZClipOptions options{.max_norm = max_norm, .clip_to = clip_to};
      ZClip rule(options);
      SlowZClip slow(options);
      RandomNorms norms(7);
      for (int step = 0; step < 400; ++step) {
        const double norm = norms.norm();
        ASSERT_NEAR(rule.observe(norm).value(), slow.observe(norm), 1e-10) << step;
      }
      EXPECT_GT(slow.spikes, 10);
    }
  }
}

TEST(ZClip, NormsThatDoNotChangeAreNeverClipped) {
  ZClip rule({.max_norm = 0});
  for (int step = 0; step < 1000; ++step) ASSERT_EQ(rule.observe(0.1), 1.0);
  EXPECT_NEAR(rule.observe(10).value(), 0.01, 1e-6);
}

TEST(ZClip, NormsThatAreNotFiniteAreRefusedAndForgotten) {
  ZClip rule({.warmup = 3});
  for (int step = 0; step < 10; ++step) {
    const std::string before = rule.save();
    for (const double norm : {kZClipNan, kZClipInfinity, -kZClipNan, 1e80})
      EXPECT_FALSE(rule.observe(norm).has_value());
    ASSERT_EQ(rule.save(), before) << step;
    rule.observe(1 + 0.1 * step);
  }
}

TEST(ZClip, GoesOnBitForBitFromItsMemory) {
  for (const int steps_before : {0, 10, 25, 60}) {
    RandomNorms norms(3);
    ZClip rule({});
    for (int step = 0; step < steps_before; ++step) rule.observe(norms.norm());
    ZClip resumed({});
    resumed.restore(rule.save());
    for (int step = 0; step < 100; ++step) {
      const double norm = norms.norm();
      ASSERT_EQ(rule.observe(norm), resumed.observe(norm));
      ASSERT_EQ(rule.save(), resumed.save());
    }
  }
}

TEST(ZClip, MemoryThatIsNotItsOwnIsRefused) {
  ZClip rule({});
  for (int step = 0; step < 7; ++step) rule.observe(1);
  expect_foreign_memory_is_refused(rule);
}

}  // namespace
}  // namespace gnmr::lab
