// SPDX-License-Identifier: Apache-2.0
// Decisions as JSON Lines:
// {"step":7,"common":false,"admitted":["a"],"denied":["b"],"futile":[],"released":["c"],"recovered":["a","d"]}
//
// Goals: names in unit order; no work that depends on the number of units in a calm step. Non-goals: reading them.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gnmr/core/types.h"
#include "gnmr/io/record_sink.h"

namespace gnmr::io {

/// Writes a line a decision.
class DecisionWriter {
 public:
  /// Opens `path` anew; `-` is standard output. An `Error` where that fails.
  DecisionWriter(const std::string& path, const std::vector<Unit>& units);

  /// Writes one decision; an `Error` where the disk is full.
  void write(const Decision& decision);

  /// Writes what is still held back; an `Error` where that fails.
  void close();

 private:
  void append_names(const char* key, std::span<const UnitIndex> units);

  std::unique_ptr<RecordSink> sink_;
  std::vector<std::string> quoted_names_;
  std::string line_;  // reused
};

}  // namespace gnmr::io
