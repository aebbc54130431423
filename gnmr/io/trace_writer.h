// SPDX-License-Identifier: Apache-2.0
// Traces as text.
//
// Goals: what is written reads back the same, bit for bit, in its shortest form; no allocation per row after the first.
// Non-goals: files (the caller has the stream, and its errors).
#pragma once

#include <cstdint>
#include <ostream>
#include <span>
#include <string>
#include <vector>

namespace gnmr::io {

/// Writes a trace row by row.
class TraceWriter {
 public:
  /// Writes the header; the stream must outlive the writer.
  TraceWriter(std::ostream& out, const std::vector<std::string>& units);

  /// Writes a row; `sampled` may be empty where every unit has a sample. An `Error` where the sizes do not fit.
  void write(std::int64_t step, std::span<const double> norms, std::span<const std::uint8_t> sampled = {});

 private:
  std::ostream& out_;
  std::size_t units_;
  std::string line_;
};

}  // namespace gnmr::io
