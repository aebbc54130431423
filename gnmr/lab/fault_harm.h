// SPDX-License-Identifier: Apache-2.0
// Which injected faults did harm, and which of these were met.
//
// The steps of faults and of their harm are batches: where one is held and comes again (lag 1), what the run did in
// either step it did about that batch. A fault that begins behind the last batch that ran does not count.
//
// A fault in one step of a layer moves the gradient of the batch by some distance (harm.jsonl). It is harmful where
// the largest one over its steps is above `kHarmfulDistance`. A layer that runs high in a step has no line: a fault
// without any was *covered*, and nobody knows what it would have done.
//
// Goals: the same rule for whoever chose the units: a detector, an oracle, chance. Non-goals: admissions that met
// nothing (gnmr/lab/detection_score.h).
#pragma once

#include <span>

#include "gnmr/io/journal_reader.h"
#include "gnmr/lab/cell.h"
#include "gnmr/lab/fault_list.h"
#include "gnmr/run/harm.h"
#include "gnmr/run/run_batches.h"

namespace gnmr::lab {

/// A gradient this far from the sound one, relative to it, was harmed.
inline constexpr double kHarmfulDistance = 0.1;

/// Counts. A harmful fault was met where its layer was high in one of its steps; where `journal` is not null (its
/// decisions were carried out), also where the unit of the layer's name was admitted from the first step to the
/// last; and, if it is transient, where its step was run again.
FaultHarm fault_harm(std::span<const ListedFault> faults, std::span<const run::HarmLine> harm,
                     const run::RunBatches& batches, const io::Journal* journal);

}  // namespace gnmr::lab
