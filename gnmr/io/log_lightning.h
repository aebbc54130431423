// SPDX-License-Identifier: Apache-2.0
// metrics.csv as Lightning's CSVLogger writes it: a column per metric in the order of their names, among them `step`; a
// row holds what was logged together, and other cells are empty.
//
// Goals: each metric that fits the pattern is a unit, and rows of one step meet. Non-goals: constant memory.
#pragma once

#include <memory>
#include <vector>

#include "gnmr/io/byte_source.h"
#include "gnmr/io/csv_record.h"
#include "gnmr/io/trace.h"

namespace gnmr::io {

/// Whether a header is one that the CSVLogger writes, and not our own.
bool is_lightning_header(const std::vector<CsvCell>& header);

/// Reads such a file.
std::unique_ptr<TraceReader> read_lightning_csv(ByteSource& source, const TraceOptions& options);

}  // namespace gnmr::io
