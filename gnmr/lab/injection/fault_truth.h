// SPDX-License-Identifier: Apache-2.0
// What is known of a run's faults: the truth file, the list of faults, who is faulty in a step, what an oracle would
// do.
//
// Goals: pure functions of the plan. Non-goals: files, scores (gnmr/lab).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gnmr/lab/injection/fault_plan.h"

namespace gnmr::lab {

/// A truth file as text: `step,<layer>,...` with a row for each step from 1 to `run_steps`, 1 where a fault is. Faults
/// of the run are in no column.
std::string truth_text(std::span<const std::string> layer_names, std::span<const PlannedFault> faults,
                       std::int64_t run_steps);

/// A JSON object a line, in the order of the plan: `{"kind":"fault","fault":"saturate","site":"cast",
/// "layer":"layers.0.q","first":60,"last":64,"transient":false,"strength":64}`; `layer` is null for one of the run.
std::string fault_list_text(std::span<const std::string> layer_names, std::span<const PlannedFault> faults,
                            double strength);

/// The layers with a fault in a step, ascending.
std::vector<std::uint32_t> faulty_layers(std::span<const PlannedFault> faults, std::int64_t step);

/// What an oracle may do.
struct OracleSettings {
  std::int64_t lock_steps = 1;  // that a recovery lasts, at least 1; renewed where the fault lasts longer
  std::uint32_t most = 0;       // layers at a time
};

/// The layers that an oracle has in recovery in a step, ascending: each from its fault's first step on, the earlier
/// ones first where there are more than it may have; one that must wait comes in when there is room, if it still needs
/// it.
std::vector<std::uint32_t> oracle_layers(std::span<const PlannedFault> faults, const OracleSettings& settings,
                                         std::int64_t step);

}  // namespace gnmr::lab
