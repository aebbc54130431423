// SPDX-License-Identifier: Apache-2.0
// Which faults are injected where and when, settled before a run begins.
//
// Goals: a pure function of its settings; a longer run begins with the faults of a shorter one; at most one fault a
// layer at a time, with at least one sound step between two; a re-enacted bug begins once and stays. Non-goals: what a
// fault does (fault_hook.h), scores.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "gnmr/lab/experiment/fault_kinds.h"

namespace gnmr::lab {

/// The layer of a fault that is of the run.
inline constexpr std::uint32_t kNoLayer = std::numeric_limits<std::uint32_t>::max();

/// How many times as long as other faults a drift lasts.
inline constexpr std::int64_t kDriftFactor = 8;

/// What to plan.
struct FaultSettings {
  std::uint32_t layer_count = 0;        // that can have a fault
  std::vector<FaultChoice> kinds = {};  // one is drawn for each fault; none: no faults
  std::int64_t every = 12;              // mean number of steps from one fault to the next
  std::int64_t steps = 5;               // that a fault lasts; a drift longer, a bug to the end, what is transient one
  std::int64_t layers = 1;              // in which one begins at once, where so many have none
  std::int64_t from = 40;               // first step that may have one
  std::int64_t seed = 1;
  std::int64_t run_steps = 200;
};

/// A fault from `step_first` to `step_last`, both included.
struct PlannedFault {
  std::int64_t step_first = 0;
  std::int64_t step_last = 0;  // cut off at the end of the run
  std::int64_t steps = 1;      // that it would last in a run without end
  std::uint32_t layer = 0;     // kNoLayer: of the run
  FaultKind kind = FaultKind::saturate;
  bool transient = false;  // gone when the step is run again

  bool operator==(const PlannedFault&) const = default;

  /// Whether it is in force in a step.
  bool covers(std::int64_t step) const { return step_first <= step && step <= step_last; }
};

/// All faults of a run, by their first steps. In each step faults begin with probability 1 / every, all of one kind, in
/// `layers` layers that have none, or in those that there are.
std::vector<PlannedFault> plan_faults(const FaultSettings& settings);

}  // namespace gnmr::lab
