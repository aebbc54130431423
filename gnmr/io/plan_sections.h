// SPDX-License-Identifier: Apache-2.0
// The plan of a controller with lag 1 in a state file: extra sections beside the controller's own (docs/files.md).
//
// Goals: a run goes on with the step that was planned. Non-goals: the rest of the state (state_file.h).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gnmr/core/controller.h"
#include "gnmr/io/state_file.h"

namespace gnmr::io {

/// What is stored beside a plan by whoever writes a journal.
struct PlanNotes {
  std::map<std::int64_t, std::string> whys = {};  // by batch: why it is to run as a trial or a replay
  std::string called_why = {};                    // of a trial that has been called
  std::int64_t disarm_step = 0;                   // the first step that is only watched; 0: none
  std::string disarm_why = {};
};

/// A plan as it was found.
struct LoadedPlan {
  PlanState plan = {};
  std::optional<PlanNotes> notes = {};  // none: the state has no batches
};

/// Adds the sections of a plan. `with_batches`: with lag 0 too, because batches do not have the numbers of their steps.
void add_plan(const Controller& controller, bool with_batches, const PlanNotes& notes, ExtraSections& sections);

/// What an `Error` about the content of a section begins with.
std::string damaged_section(std::string_view section);

/// The plan in the sections of a state. Throws `Error` where they are damaged.
LoadedPlan read_plan(const ExtraSections& sections, const std::vector<Unit>& units);

}  // namespace gnmr::io
