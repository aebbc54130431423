// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/truth.h"

#include <algorithm>
#include <utility>

#include "gnmr/io/csv_trace.h"
#include "gnmr/io/row_source.h"

namespace gnmr::io {

TruthReader::TruthReader(std::unique_ptr<TraceReader> cells)
    : cells_(std::move(cells)), faulty_(cells_->units().size()) {}

bool TruthReader::next(TruthRow& row) {
  TraceRow cells;
  if (!cells_->next(cells)) return false;
  std::transform(cells.norms.begin(), cells.norms.end(), faulty_.begin(),
                 [](double cell) { return static_cast<std::uint8_t>(cell != 0); });
  row = {.step = cells.step, .faulty = faulty_};
  return true;
}

TruthReader open_truth(const std::string& path) { return open_truth(open_byte_source(path)); }

TruthReader open_truth(std::unique_ptr<ByteSource> source) {
  return TruthReader(in_step_order(make_csv_trace(std::move(source), CsvCells::zero_or_one), false));
}

}  // namespace gnmr::io
