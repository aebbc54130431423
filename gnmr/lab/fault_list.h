// SPDX-License-Identifier: Apache-2.0
// faults.jsonl: the faults that were injected into a run, one line each (docs/faults.md).
//
//   {"kind":"fault","fault":"saturate","site":"cast","layer":"layers.0.q","first":60,"last":64,"transient":false,...}
//
// Goals: what experiments are scored by. Non-goals: writing (gnmr/lab/injection), anything that a detector reads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gnmr::lab {

/// One fault.
struct ListedFault {
  std::string fault;       // its kind
  std::string layer = {};  // empty: of the run, not of a layer
  std::int64_t first = 0;  // steps, both included
  std::int64_t last = 0;
  bool transient = false;  // gone when the step is run again

  bool operator==(const ListedFault&) const = default;
};

/// All faults of a file, in its order. Kinds of lines and keys that are not known are skipped; damage is an `Error`
/// with file and line.
std::vector<ListedFault> read_fault_list(const std::string& path);

}  // namespace gnmr::lab
