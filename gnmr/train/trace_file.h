// SPDX-License-Identifier: Apache-2.0
// A trace that a run writes beside its journal: norms.csv, what `gnmr replay` and `gnmr tune` read, and errors.csv,
// what `gnmr tune --evidence` reads.
//
// Goals: one row per step. Non-goals: a file that a full disk must not lose lines of; going on in a file: a run that is
// resumed begins another one.
#pragma once

#include <cstdint>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "gnmr/io/trace_writer.h"

namespace gnmr::train {

/// Writes the file; nothing throws or stops after the constructor.
class TraceFile {
 public:
  TraceFile(const std::string& path, const std::vector<std::string>& columns);

  /// One step, one value a column; `sampled` is 0 where there is none. A second row of a step is left out.
  void write(std::int64_t step, std::span<const double> values, std::span<const std::uint8_t> sampled);

  void flush() { out_.flush(); }

 private:
  std::ofstream out_;
  io::TraceWriter writer_;
  std::int64_t last_step_ = 0;
};

}  // namespace gnmr::train
