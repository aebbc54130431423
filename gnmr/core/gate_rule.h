// SPDX-License-Identifier: Apache-2.0
// What a gate before the update needs to know; for host and device code alike.
#pragma once

#include <cstdint>

namespace gnmr {

/// What may close the gate of a step (lag 1).
enum class HoldRule : std::uint8_t {
  never,
  for_trial,  // a free unit at risk, or a non-finite risk of any unit; the norms of a held step are dropped
  for_guard,  // a free unit at risk, unless the step is common; the norms count
};

/// What a gate knows per unit.
namespace gate_flag {
inline constexpr std::uint8_t kFree = 1;       // the unit could be admitted: not forced, not in recovery, no wait
inline constexpr std::uint8_t kZeroMuted = 2;  // a norm of 0 counts as no sample
}  // namespace gate_flag

}  // namespace gnmr
