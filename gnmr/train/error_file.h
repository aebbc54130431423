// SPDX-License-Identifier: Apache-2.0
// errors.csv: every error of a low path that was measured, a row a pass, as a trace with a column a unit and place.
//
// Goals: what `gnmr tune --evidence` reads. Non-goals: a file that a full disk must not lose lines of.
#pragma once

#include <cstdint>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "gnmr/io/trace_writer.h"

namespace gnmr::train {

/// Writes the file; nothing throws or stops after the constructor.
class ErrorFile {
 public:
  ErrorFile(const std::string& path, const std::vector<std::string>& columns);

  /// One pass; NaN is no sample. Of a step with a trial the patrol's row stays and the trial's is left out, since steps
  /// of a trace increase.
  void write(std::int64_t step, std::span<const double> errors);

 private:
  std::ofstream out_;
  io::TraceWriter writer_;
  std::int64_t last_step_ = 0;
  std::vector<double> values_;
  std::vector<std::uint8_t> measured_;
};

}  // namespace gnmr::train
