// SPDX-License-Identifier: Apache-2.0
// What a checkpoint holds of a run, and how a run goes on from it.
//
// Goals: bit for bit. Non-goals: files and folders (checkpoint.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "gnmr/train/checkpoint.h"
#include "gnmr/train/run_parts.h"

namespace gnmr::train {

/// What the supervisor needs of a checkpoint, once it is there.
struct RestoredControl {
  std::string state = {};         // bytes of a state file; empty: there is none
  std::optional<Mode> mode = {};  // that the kill switch had asked for
};

/// All that the run needs to go on after a step. It refers to the parts.
CheckpointParts checkpoint_of(const RunParts& parts, std::int64_t step);

/// Takes over the newest checkpoint, or that of the step that was asked for, where there is one: all but the
/// supervisor. An `Error` where it is of other data or another arithmetic.
RestoredControl restore_checkpoint(RunParts& parts);

}  // namespace gnmr::train
