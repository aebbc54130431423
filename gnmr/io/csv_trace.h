// SPDX-License-Identifier: Apache-2.0
// The project's own trace: CSV with the header `step,<unit>,...` and a row per step.
//
// Goals: hundreds of megabytes per second on one core, no allocation per row, every fault of a file named with line and
// column. Non-goals: recognising the format (log_detect.h), the order of steps (row_source.h).
#pragma once

#include <memory>
#include <string_view>

#include "gnmr/io/byte_source.h"
#include "gnmr/io/row_source.h"

namespace gnmr::io {

/// The name of the first column.
inline constexpr std::string_view kStepColumn = "step";

/// What the cells of a file may hold.
enum class CsvCells {
  norms,        // numbers that are not negative; empty: no sample
  zero_or_one,  // ground truth; empty is an error
};

/// The rows of such a file; reads the header at once.
std::unique_ptr<RowSource> make_csv_trace(std::unique_ptr<ByteSource> source, CsvCells cells = CsvCells::norms);

}  // namespace gnmr::io
