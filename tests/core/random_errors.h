// SPDX-License-Identifier: Apache-2.0
// Random errors of low paths for differential and property tests: usual ones that may change for good, faults that
// last, infinities, zeros, gaps, patrols that are empty, partial or complete.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/random_run.h"

namespace gnmr::testing {

/// How often errors are measured, and how often a usual one changes for good.
enum class Patrols : std::uint8_t { any, frequent };

/// Errors, step by step, of units times sites.
class RandomErrors {
 public:
  RandomErrors(Random& random, std::size_t units, std::size_t sites, Patrols patrols = Patrols::any)
      : random_(random),
        level_(units * sites),
        trouble_(units * sites, 1.0),
        sites_(sites),
        empty_rate_(random.pick({0.0, 0.3, 0.9, 1.0})),
        complete_rate_(random.pick({0.0, 0.3, 1.0})),
        fault_rate_(random.pick({0.0, 0.001, 0.01, 0.05})),
        odd_rate_(random.pick({0.0, 0.001, 0.02})),
        change_rate_(random.pick({0.0, 0.0, 0.001, 0.01})),
        coarse_(random.chance(0.2)) {
    for (double& level : level_) level = 0.02 * std::exp(random.uniform(-1, 1));
    if (patrols == Patrols::frequent) {
      empty_rate_ = random.pick({0.0, 0.0, 0.3});
      change_rate_ = random.pick({0.001, 0.003, 0.01});
    }
    if (random.chance(0.1)) {
      for (double& level : level_) level *= random.pick({0.0, 1e-318, 1e-7, 1e5, 1e305});
    }
  }

  /// A patrol: empty, of some units, or of all.
  std::vector<double> patrol() {
    move_on();
    if (random_.chance(empty_rate_)) return {};
    return measured(random_.chance(complete_rate_) ? 1.0 : random_.pick({0.05, 0.3, 0.9}));
  }

  /// The errors of a trial: nearly always of all units; faults may be gone.
  std::vector<double> trial() {
    if (random_.chance(0.2)) trouble_.assign(trouble_.size(), 1.0);
    if (random_.chance(0.02)) return {};
    return measured(random_.chance(0.9) ? 1.0 : 0.5);
  }

 private:
  void move_on() {
    for (double& level : level_) {
      if (random_.chance(change_rate_)) level *= random_.pick({0.2, 0.6, 1.7, 5.0});
    }
    for (double& trouble : trouble_) {
      if (random_.chance(fault_rate_)) trouble = random_.pick({1.5, 2.9, 10.0, 1e4, 1e300, 0.0});
      if (random_.chance(0.2)) trouble = 1.0;
    }
  }

  std::vector<double> measured(double share) {
    std::vector<double> errors(level_.size(), std::numeric_limits<double>::quiet_NaN());
    for (std::size_t unit = 0; unit * sites_ < errors.size(); ++unit) {
      if (!random_.chance(share)) continue;
      for (std::size_t i = unit * sites_; i < (unit + 1) * sites_; ++i) {
        if (random_.chance(0.05)) continue;  // not every place of a unit
        errors[i] = level_[i] * trouble_[i] * std::exp(0.2 * random_.normal());
        if (coarse_) errors[i] = std::ceil(errors[i] * 128) / 128;  // ties
        if (random_.chance(odd_rate_)) errors[i] = odd();
      }
    }
    return errors;
  }

  double odd() {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    return random_.pick({kInfinity, kInfinity, 0.0, -0.0, 5e-324, 1.7e308, 1e-6});
  }

  Random& random_;
  std::vector<double> level_, trouble_;
  std::size_t sites_;
  double empty_rate_, complete_rate_, fault_rate_, odd_rate_, change_rate_;
  bool coarse_;
};

}  // namespace gnmr::testing
