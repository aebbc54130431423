// SPDX-License-Identifier: Apache-2.0
// Options as the arithmetic of one unit wants them.
//
// Goals: one conversion, for the core and for devices. Non-goals: checking options (options.h).
#pragma once

#include <algorithm>
#include <limits>

#include "gnmr/core/options.h"
#include "gnmr/core/unit_math.h"

namespace gnmr {

/// The rules that follow from valid options.
inline unit_math::Rules signal_rules(const Options& options) {
  unit_math::Rules rules{
      .beta = options.beta,
      .one_minus_beta = 1.0 - options.beta,
      .tau = options.tau,
      .delta_tau = options.delta_tau,
      .fall_tau = options.fall_tau,
      .baseline = options.baseline,
      .noise_factor = options.noise_factor,
      .noise_beta = options.noise_beta,
      .one_minus_noise_beta = 1.0 - options.noise_beta,
      .mean_cap = options.mean_cap,
      .fall_on = options.fall_tau > 0,
      .cap_on = options.mean_cap > 0,
      .warmup_samples = static_cast<unsigned>(options.warmup_samples),
      .plain_low = std::numeric_limits<double>::denorm_min(),
      .plain_high = std::min(options.tau, unit_math::kRatioCap / 2),
  };
  if (rules.cap_on) {
    // A hair inside the cap, so that the rounding of the ratio cannot hide a capped sample.
    rules.plain_low = std::max(rules.plain_low, (1.0 / options.mean_cap) * (1.0 + 0x1p-40));
    rules.plain_high = std::min(rules.plain_high, options.mean_cap * (1.0 - 0x1p-40));
  }
  return rules;
}

}  // namespace gnmr
