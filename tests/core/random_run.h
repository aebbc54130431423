// SPDX-License-Identifier: Apache-2.0
// Random options, units and norms for differential and property tests: drift, spikes, collapses, NaN, infinities,
// zeros, gaps, extreme scales. Deterministic by seed, on every platform (no std distributions).
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numbers>
#include <optional>
#include <string>
#include <vector>

#include "gnmr/core/options.h"
#include "gnmr/core/types.h"

namespace gnmr::testing {

/// A small generator (splitmix64).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 0x1234567u) {}

  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  std::size_t below(std::size_t count) { return static_cast<std::size_t>(next() % count); }
  bool chance(double probability) { return uniform() < probability; }
  double normal() { return std::sqrt(-2 * std::log(1 - uniform())) * std::cos(2 * std::numbers::pi * uniform()); }
  template <class T>
  T pick(std::initializer_list<T> values) {
    return values.begin()[below(values.size())];
  }

 private:
  std::uint64_t state_;
};

/// Every option drawn from values that matter, ends of ranges included.
inline Options random_options(Random& random) {
  Options options = Options::preset(random.chance(0.5) ? "default" : "paper");
  const auto sometimes = [&random] { return random.chance(0.4); };
  if (sometimes()) options.beta = random.pick({0.0, 0.3, 0.5, 0.9, 0.99, 0.9999999, 1 - 0x1p-53});
  if (sometimes()) options.tau = random.pick({1.0, 1.2, 1.5, 3.0, 1e300});
  if (sometimes()) options.delta_tau = random.pick({1e-6, 0.1, 0.5, 2.0, 1e300});
  if (sometimes()) options.fall_tau = random.pick({0.0, 1e-6, 0.1, 0.7, 5.0});
  if (sometimes()) options.baseline = random.pick({0.0, 0.3, 1.0});
  if (sometimes()) options.window = random.pick({1, 2, 3, 7, 30, 1024});
  if (sometimes()) options.noise_factor = random.pick({0.0, 0.5, 2.0, 8.0, 1e306});
  if (sometimes()) options.noise_beta = random.pick({0.0, 0.5, 0.9, 0.98, 0.9999999, 1 - 0x1p-53});
  if (sometimes()) options.mean_cap = random.pick({0.0, 1.0000001, 1.3, 2.0, 3.0, 10.0, 1e300});
  if (random.chance(0.8)) options.warmup_samples = random.pick({1, 1, 2, 2, 5, 20, 100});
  if (sometimes()) options.common_share = random.pick({1e-9, 0.1, 0.5, 0.9, 1.0});
  if (sometimes()) options.lock_steps = random.pick({1, 2, 3, 10, 25});
  if (sometimes()) options.max_lock_steps = random.pick({0, 1, 7, 40, 160});
  if (sometimes()) options.cooldown_steps = random.pick({0, 1, 5, 50});
  options.max_o = random.pick({0.0, 0.01, 0.1, 0.3, 0.999, 1.0, 2.0, 3.0, 7.0, 1000.0});
  if (sometimes()) options.max_cost = random.pick({0.2, 0.5, 0.9, 1.0});
  if (sometimes()) options.group_max = random.pick({0, 1, 2, 3});
  if (random.chance(0.15)) options.max_high_share = random.pick({0.003, 0.01, 0.03, 0.1, 0.3, 0.9});
  if (sometimes()) options.lag = random.pick({0, options.lock_steps > 1 ? 1 : 0});
  options.selector = random.pick(
      {Selector::automatic, Selector::norms, Selector::evidence, Selector::evidence_after_alarm, Selector::trial});
  options.guard = random.pick({Guard::none, Guard::clip, Guard::skip, Guard::replay});
  if (sometimes()) options.max_trials = random.pick({0, 1, 2, 10, 99, 100});
  if (sometimes()) options.error_factor = random.pick({1.0, 1.5, 3.0, 1e300});
  options.error_floor = random.pick({0.0, 0.0, 1e-7, 0.03, 0.1, 1e300});  // most errors are below 0.1
  options.error_ceiling = random.pick({0.0, 0.0, 1.0, 4.0, 8.0, 1e300});
  if (sometimes()) options.error_beta = random.pick({0.0, 0.5, 0.9, 1 - 0x1p-53});
  if (sometimes()) options.error_warmup = random.pick({1, 2, 20});
  options.coarse_error = random.pick({0.0, 0.01, 0.01, 0.02, 0.02, 0.2});  // most errors are between 0.007 and 0.05
  if (sometimes()) options.coarse_factor = random.pick({1.0, 1.2, 2.0});
  options.coarse_fill = random.pick({0.0, 0.005, 0.02, 0.2});
  return options;
}

/// Makes standing recoveries frequent: for runs in which errors are measured often.
inline void favour_standing(Random& random, Options& options) {
  options.coarse_error = random.pick({0.005, 0.01, 0.02});
  options.coarse_factor = random.pick({1.0, 1.2, 1.5, 3.0});
  options.coarse_fill = random.pick({0.0, 0.005, 0.01, 0.015});
  options.max_o = random.pick({1.0, 2.0, 3.0, 0.3, 0.6, 1000.0});
  options.group_max = random.pick({0, 1, 1, 2});
  options.lock_steps = random.pick({2, 3, 10});
}

/// Units with costs, groups and a few that the user forces.
inline std::vector<Unit> random_units(Random& random, std::size_t count) {
  std::vector<Unit> units;
  const bool plain = random.chance(0.4);
  for (std::size_t i = 0; i < count; ++i) {
    Unit unit{.name = "unit." + std::to_string(i)};
    if (!plain) {
      unit.cost = 1 + static_cast<std::int64_t>(random.below(9));
      if (random.chance(0.7)) unit.group = "block" + std::to_string(i / 5);
      unit.forced = random.chance(0.05);
    }
    units.push_back(unit);
  }
  return units;
}

/// Norms, step by step, of units that misbehave now and then.
class RandomRun {
 public:
  RandomRun(Random& random, std::size_t units)
      : random_(random),
        scale_(units),
        trouble_(units, 1.0),
        noise_(random.pick({0.0, 0.02, 0.15, 0.5})),
        spike_rate_(random.pick({0.0, 0.002, 0.01, 0.05})),
        gap_rate_(random.pick({0.0, 0.0, 0.05, 0.5, 0.95})),
        odd_rate_(random.pick({0.0, 0.001, 0.02})),
        common_rate_(random.pick({0.0, 0.01, 0.05})),
        coarse_(random.chance(0.2)) {
    for (double& scale : scale_) scale = std::exp(random.uniform(-6, 6));
    if (random.chance(0.1)) {
      for (double& scale : scale_) scale *= random.pick({1e-320, 1e-300, 1.0, 1e300, 1e307});
    }
  }

  /// The norms of the next step; empty: no sample.
  std::vector<std::optional<double>> next() {
    std::vector<std::optional<double>> norms(scale_.size());
    const double all = random_.chance(common_rate_) ? random_.pick({8.0, 0.1, 1e40}) : 1.0;
    const bool all_gone = random_.chance(common_rate_ / 10);
    for (std::size_t i = 0; i < norms.size(); ++i) {
      if (random_.chance(spike_rate_)) trouble_[i] = random_.pick({1.8, 3.0, 8.0, 0.3, 0.1, 1e9, 1e-9, 1e40});
      if (random_.chance(0.2)) trouble_[i] = 1.0;
      scale_[i] *= 1 + 0.002 * random_.normal();
      if (random_.chance(gap_rate_)) continue;
      double norm = scale_[i] * trouble_[i] * all * std::exp(noise_ * random_.normal());
      if (coarse_) norm = std::ceil(norm * 4) / 4;  // ties
      if (random_.chance(odd_rate_)) norm = odd();
      if (all_gone) norm = std::numeric_limits<double>::quiet_NaN();
      norms[i] = norm;
    }
    return norms;
  }

 private:
  double odd() {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
    return random_.pick({kInfinity, kNan, std::copysign(kNan, -1.0), 0.0, -0.0, 0.0, 5e-324, 1.7e308});
  }

  Random& random_;
  std::vector<double> scale_;
  std::vector<double> trouble_;
  double noise_, spike_rate_, gap_rate_, odd_rate_, common_rate_;
  bool coarse_;
};

/// Splits optional norms into the arrays that an observation takes. What stands under a gap must not matter.
struct NormArrays {
  std::vector<double> norms;
  std::vector<std::uint8_t> sampled;

  explicit NormArrays(const std::vector<std::optional<double>>& given) {
    static constexpr double kUnderGap[] = {-1.0, 0.0, std::numeric_limits<double>::quiet_NaN(), 7.0};
    for (std::size_t i = 0; i < given.size(); ++i) {
      norms.push_back(given[i].value_or(kUnderGap[i % 4]));
      sampled.push_back(given[i].has_value() ? static_cast<std::uint8_t>(1 + i % 255) : 0);
    }
  }
};

}  // namespace gnmr::testing
