// SPDX-License-Identifier: Apache-2.0
// harm.jsonl: how far an injected fault moves the gradient of a batch, a line per step and layer.
//
//   {"kind":"harm","step":57,"layer":"layers.2.up","distance":0.43}
//
// Goals: ground truth for experiments; of a step and layer that come twice (a resumed run) the last counts.
// Non-goals: anything that a detector reads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gnmr/io/line_writer.h"

namespace gnmr::run {

/// One fault in one step.
struct HarmLine {
  std::int64_t step = 0;
  std::string layer;
  double distance = 0;  // of the gradient with this fault alone from the one without, relative; may be infinite

  bool operator==(const HarmLine&) const = default;
};

/// Appends the line of a fault.
void append_line(std::string& out, const HarmLine& line);

using HarmWriter = io::RecordWriter<HarmLine>;

/// All lines of a file, in its order; a torn last line is skipped, any other damage is an `Error` with file and
/// line.
std::vector<HarmLine> read_harm(const std::string& path);

}  // namespace gnmr::run
