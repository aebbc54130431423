// SPDX-License-Identifier: Apache-2.0
// Which faults are injected where and when, settled before a run begins.
//
// Goals: a pure function of its settings; a longer run begins with the faults of a shorter one; at most one fault a
// unit at a time, with at least one sound step between two. Non-goals: what a fault does (gnmr/torch), scores.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gnmr/core/types.h"

namespace gnmr::run {

/// What to plan.
struct FaultSettings {
  std::uint32_t unit_count = 0;         // linear layers that can have one
  std::vector<std::string> kinds = {};  // one is drawn for each fault; none: no faults
  std::int64_t every = 12;              // mean number of steps from one fault to the next
  std::int64_t steps = 5;               // that a fault lasts
  std::int64_t from = 40;               // first step that may have one
  std::int64_t seed = 1;
  std::int64_t run_steps = 200;
};

/// A fault from `step_first` to `step_last`, both included.
struct PlannedFault {
  std::int64_t step_first = 0;
  std::int64_t step_last = 0;  // cut off at the end of the run
  UnitIndex unit = 0;
  std::string kind;

  bool operator==(const PlannedFault&) const = default;
};

/// All faults of a run, by their first steps. In each step one begins with probability 1 / every, in a unit that has
/// none; no more than one begins in a step.
std::vector<PlannedFault> plan_faults(const FaultSettings& settings);

/// A truth file as text: `step,<unit>,...` with a row for each step from 1 to `run_steps`, 1 where a fault is.
std::string truth_text(const std::vector<std::string>& unit_names, const std::vector<PlannedFault>& faults,
                       std::int64_t run_steps);

/// Writes it in the place of the file at `path`: all of it or nothing.
void write_truth(const std::string& path, const std::vector<std::string>& unit_names,
                 const std::vector<PlannedFault>& faults, std::int64_t run_steps);

}  // namespace gnmr::run
