// SPDX-License-Identifier: Apache-2.0
// CSV that Weights & Biases exports: of a chart (`"Step","run - grad_norm","run - grad_norm__MIN",...`) or of a run's
// history (a column `_step` among the others).
//
// Goals: each metric of a run that fits the pattern is a unit, whatever other columns there are; runs are never mixed.
// Non-goals: our own CSV.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gnmr/io/byte_source.h"
#include "gnmr/io/csv_record.h"
#include "gnmr/io/row_source.h"
#include "gnmr/io/trace.h"

namespace gnmr::io {

/// Whether a header is one that Weights & Biases writes.
bool is_wandb_header(const std::vector<CsvCell>& header);

/// The runs that have columns which fit the pattern, in the order of the columns; empty where columns name no run.
std::vector<std::string> wandb_runs(ByteSource& source, const TraceOptions& options);

/// The rows of one run of such a file; reads the header at once.
std::unique_ptr<RowSource> make_wandb_log(std::unique_ptr<ByteSource> source, const TraceOptions& options);

}  // namespace gnmr::io
