// SPDX-License-Identifier: Apache-2.0
// What the controller and a gate before the update have in common; for host and device code alike.
#pragma once

#include <cstdint>

namespace gnmr {

/// Who says which units go to recovery; the words are those of the option (gnmr/core/options.h). A selector in force is
/// never `automatic`.
enum class Selector : std::uint8_t { automatic = 0, norms = 1, evidence = 2, evidence_after_alarm = 3, trial = 4 };

/// Why a unit is at risk, or in recovery. No norm has the last three: `error` is an outlier, `coarse` an error that is
/// always far above that of other units, `fill` one that is always large beside coarse ones (standing recovery).
enum class RiskKind : std::uint8_t { none = 0, non_finite = 1, rise = 2, fall = 3, error = 4, coarse = 5, fill = 6 };

/// Whether a recovery for this is a standing one: its unit's error is always high.
constexpr bool is_standing(RiskKind kind) { return kind == RiskKind::coarse || kind == RiskKind::fill; }

/// What may close the gate of a step (lag 1).
enum class HoldRule : std::uint8_t {
  never,
  for_trial,  // an alarm by errors or norms; the norms of a held step are dropped
  for_guard,  // a free unit with an error above its limit or at risk, unless the step is common; the norms count
};

/// What a gate knows per unit.
namespace gate_flag {
inline constexpr std::uint8_t kFree = 1;       // the unit could be admitted: not forced, not in recovery, no wait
inline constexpr std::uint8_t kZeroMuted = 2;  // a norm of 0 counts as no sample
inline constexpr unsigned kDoubtShift = 2;     // two bits above: the binary logarithm of the doubt
inline constexpr std::uint8_t kDoubt = 3 << kDoubtShift;
}  // namespace gate_flag

}  // namespace gnmr
