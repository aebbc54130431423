// SPDX-License-Identifier: Apache-2.0
// How a run's admissions met its injected faults, from its journal, the batches of its steps, and faults.csv.
//
// Goals: the score of gnmr/lab/detection_score.h, in batches, for a run that is over. Non-goals: other kinds of truth.
#pragma once

#include <optional>
#include <string>

#include "gnmr/io/journal_reader.h"
#include "gnmr/lab/cell.h"
#include "gnmr/run/run_batches.h"

namespace gnmr::lab {

/// The score, of the batches that ran; none where there is no such file, or where its columns are not the journal's
/// units (faults are of whole layers; with other units there is nothing to compare).
std::optional<Detection> detection_in(const io::Journal& journal, const run::RunBatches& batches,
                                      const std::string& truth_path);

}  // namespace gnmr::lab
