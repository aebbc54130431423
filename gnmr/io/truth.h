// SPDX-License-Identifier: Apache-2.0
// Ground truth beside a trace: CSV like a trace, cells 0 or 1 (1: the unit was faulty in that step).
//
// Goals: the same header, rows and messages as a trace; a stream. Non-goals: judging decisions by it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gnmr/io/byte_source.h"
#include "gnmr/io/trace.h"

namespace gnmr::io {

/// One step; the view is valid until the next `next`.
struct TruthRow {
  std::int64_t step = 0;
  std::span<const std::uint8_t> faulty = {};  // one per unit
};

/// Gives the rows of a truth file, their steps strictly increasing.
class TruthReader {
 public:
  explicit TruthReader(std::unique_ptr<TraceReader> cells);

  /// Names of the units, in the order of the columns.
  const std::vector<std::string>& units() const { return cells_->units(); }

  /// Reads the next row; false at the end. An `Error` says file, line and column.
  bool next(TruthRow& row);

 private:
  std::unique_ptr<TraceReader> cells_;
  std::vector<std::uint8_t> faulty_;
};

/// Opens a truth file; `-` is standard input.
TruthReader open_truth(const std::string& path);

/// The same for bytes from elsewhere.
TruthReader open_truth(std::unique_ptr<ByteSource> source);

}  // namespace gnmr::io
