// SPDX-License-Identifier: Apache-2.0
// How much of a run was in high precision because of the controller, and why: acute recoveries, standing recovery, and
// reruns, which the budget (`max_o`) does not limit.
//
// Goals: one definition for the summary of `gnmr train`, reports and cells; the parts add up to the whole. Non-goals:
// forced units, seconds.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "gnmr/run/metrics.h"

namespace gnmr::run {

/// Unit passes in high precision, of all unit-steps. A trial of every step would add 1, so the sum may be above 1.
struct HighShares {
  double acute = 0;     // in recovery, but for standing ones
  double standing = 0;  // in standing recovery
  double reruns = 0;    // of steps that ran again: all units in a trial, those in recovery in a replay

  double total() const { return acute + standing + reruns; }
  bool operator==(const HighShares&) const = default;
};

/// What the shares are of.
struct HighCounts {
  std::uint64_t unit_steps = 0;
  std::uint64_t recovered = 0;   // unit-steps in recovery
  std::uint64_t standing = 0;    // of these, in standing recovery
  std::uint64_t rerun_high = 0;  // unit passes of reruns in high precision that are in neither

  /// 0 where there are no steps.
  HighShares shares() const;
};

/// The shares of the steps of a metrics file; none where some line does not say why its units ran high (earlier
/// versions).
std::optional<HighShares> high_shares(std::span<const TrainLine> lines, std::int64_t units);

/// `4.10% of unit-steps in high precision: 1.00% acute recovery, 2.10% standing recovery, 1.00% reruns`.
std::string high_shares_text(const HighShares& shares);

}  // namespace gnmr::run
