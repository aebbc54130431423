// SPDX-License-Identifier: Apache-2.0
// evidence.jsonl: what the casts of a unit did to its values, a line per unit.
//
//   {"kind":"evidence","step":57,"unit":"layers.2.up","relative_error":0.61,"saturated":0.18,"flushed":0.002}
//
// Written where a run is asked to measure its casts: in every step for units at risk or with an error above its limit,
// for all units when the run is evaluated. Goals: as metrics.h. Non-goals: deciding anything by the file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gnmr/io/line_writer.h"

namespace gnmr::run {

/// What casts did to the operands of one unit in one step, all micro-batches together: the worst operand in each
/// respect.
struct EvidenceLine {
  std::int64_t step = 0;
  std::string unit;
  double relative_error = 0;  // root of the summed squares, relative to the values
  double saturated = 0;       // share of the elements that were beyond the format
  double flushed = 0;         // share that became 0

  bool operator==(const EvidenceLine&) const = default;
};

/// Appends the line of a unit.
void append_line(std::string& out, const EvidenceLine& line);

using EvidenceWriter = io::RecordWriter<EvidenceLine>;

/// All lines of a file in its order; of a step and unit that come twice only the last. A torn last line is skipped,
/// any other damage is an `Error` with file and line.
std::vector<EvidenceLine> read_evidence(const std::string& path);

}  // namespace gnmr::run
