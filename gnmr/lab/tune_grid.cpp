// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "gnmr/lab/tune.h"

namespace gnmr::lab {
namespace {

// Steps of about a square root of 2: finer ones differ by less than two seeds of one run do.
const std::vector<double> kFactors{1, 0.5, 0.7, 1.4, 2, 2.8};
const std::vector<double> kErrorFactors{1, 0.5, 0.7, 1.5, 2};
const std::vector<double> kCeilingFactors{1, 0.75, 1.5};

// A replay takes about 400 bytes per unit: with more units than this there are fewer replays.
constexpr std::uint32_t kManyUnits = 8192;

/// `values` without those that come twice; the given one stays first.
std::vector<double> each_once(const std::vector<double>& values) {
  std::vector<double> once;
  for (const double value : values) {
    if (std::find(once.begin(), once.end(), value) == once.end()) once.push_back(value);
  }
  return once;
}

std::vector<double> noise_factors(const Options& base) {
  if (base.noise_factor == 0) return {0, 4, 8};
  return {base.noise_factor, base.noise_factor / 2, base.noise_factor * 2};
}

std::vector<double> locks(const Options& base, bool few) {
  const double lock = base.lock_steps;
  const double shortest = std::max(1.0, 1.0 + base.lag);
  std::vector<double> values{lock, std::min(2 * lock, kMaxWhole)};
  if (!few) values.push_back(std::max(shortest, std::floor(lock / 2)));
  return each_once(values);
}

// As units: 1%, 2% and 4% of 40 units are all one unit.
std::vector<double> budgets(const Options& base, const TuneGridSettings& settings, bool few) {
  std::vector<double> values{base.max_o};
  for (const std::uint32_t times : few ? std::vector<std::uint32_t>{2} : std::vector<std::uint32_t>{2, 4}) {
    const double units = static_cast<double>(settings.budget) * times;
    if (units >= 1 && units <= settings.units && units <= kMaxWhole) values.push_back(units);
  }
  return each_once(values);
}

/// To six digits after the point: people read these numbers.
double readable(double value) { return std::round(value * 1e6) / 1e6; }

void scale_thresholds(Options& options, double factor) {
  if (factor == 1) return;
  options.tau = readable(1 + (options.tau - 1) * factor);
  options.delta_tau = std::max(1e-6, readable(options.delta_tau * factor));
  if (options.fall_tau > 0) options.fall_tau = std::max(1e-6, readable(options.fall_tau * factor));
}

}  // namespace

std::vector<TuneCandidate> tune_grid(const Options& base, const TuneGridSettings& settings) {
  std::vector<TuneCandidate> candidates;
  const auto add = [&](Options options, double lock, double budget, TuneCandidate candidate) {
    options.lock_steps = static_cast<std::int32_t>(lock);
    options.max_o = budget;
    options.guard = Guard::none;
    candidate.changes += (options.lock_steps != base.lock_steps ? 1 : 0) + (options.max_o != base.max_o ? 1 : 0);
    candidate.options = options;
    candidates.push_back(candidate);
  };
  const bool few = settings.evidence || settings.units > kManyUnits;
  const std::vector<double> lock_values = locks(base, few);
  const std::vector<double> budget_values = budgets(base, settings, few);
  for (const double lock : lock_values) {
    for (const double budget : budget_values) {
      for (const double noise_factor : noise_factors(base)) {
        for (const double factor : kFactors) {
          Options options = base;
          options.selector = Selector::norms;
          options.noise_factor = noise_factor;
          scale_thresholds(options, factor);
          const int changes = (noise_factor != base.noise_factor ? 1 : 0) + (factor != 1 ? 1 : 0);
          add(options, lock, budget, {.options = {}, .factor = factor, .changes = changes});
        }
      }
      if (!settings.evidence) continue;
      for (const double ceiling_factor : settings.expected_error > 0 ? kCeilingFactors : std::vector<double>{1}) {
        for (const double error_factor : kErrorFactors) {
          Options options = base;
          options.selector = Selector::evidence;
          options.error_factor = std::max(1.0, readable(base.error_factor * error_factor));
          if (base.error_ceiling > 0) {
            options.error_ceiling = std::max(1.0, readable(base.error_ceiling * ceiling_factor));
          }
          const int changes = (error_factor != 1 ? 1 : 0) + (ceiling_factor != 1 ? 1 : 0);
          add(options, lock, budget, {.options = {}, .ceiling_factor = ceiling_factor, .changes = changes});
        }
      }
    }
  }
  // Options that come out the same under two names (a factor that a range cuts off) would be run twice.
  std::vector<TuneCandidate> once;
  for (const TuneCandidate& candidate : candidates) {
    const bool there = std::any_of(once.begin(), once.end(),
                                   [&](const TuneCandidate& other) { return other.options == candidate.options; });
    if (!there) once.push_back(candidate);
  }
  return once;
}

}  // namespace gnmr::lab
