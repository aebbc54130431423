// SPDX-License-Identifier: Apache-2.0
// How a run's admissions met its injected faults, from its journal and faults.csv.
//
// Goals: the score of gnmr/lab/detection_score.h for a run that is over. Non-goals: other kinds of truth.
#pragma once

#include <optional>
#include <string>

#include "gnmr/io/journal_reader.h"
#include "gnmr/lab/cell.h"

namespace gnmr::lab {

/// The score; none where there is no such file, or where its columns are not the journal's units (faults are of whole
/// layers; with other units there is nothing to compare).
std::optional<Detection> detection_in(const io::Journal& journal, const std::string& truth_path);

}  // namespace gnmr::lab
