// SPDX-License-Identifier: Apache-2.0
// What every reader of traces must keep to, whatever the bytes: an `Error`, or rows that a controller can take.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>

#include "gnmr/core/error.h"
#include "gnmr/io/trace.h"

namespace gnmr::io::fuzzing {

/// Ends the program, which the fuzzer reports.
inline void require(bool holds) {
  if (!holds) std::abort();
}

inline void check_rows(TraceReader& reader) {
  const std::size_t units = reader.units().size();
  require(units > 0);
  TraceRow row;
  for (bool first = true;; first = false) {
    const std::int64_t last = first ? std::numeric_limits<std::int64_t>::min() : row.step;
    if (!reader.next(row)) break;
    require(first || row.step > last);
    require(row.norms.size() == units && row.sampled.size() == units);
    for (std::size_t unit = 0; unit < units; ++unit) {
      require(!(row.norms[unit] < 0));
      require(row.sampled[unit] == 1 || (row.sampled[unit] == 0 && row.norms[unit] == 0));
    }
  }
  static_cast<void>(reader.notes());
}

/// Reads the bytes as a trace of that format, with and without restarts.
inline int read_as(TraceFormat format, const std::uint8_t* data, std::size_t size) {
  for (const bool allow_restart : {false, true}) {
    try {
      std::string bytes(reinterpret_cast<const char*>(data), size);
      const auto reader =
          open_trace(memory_byte_source("fuzz", std::move(bytes)), {.format = format, .allow_restart = allow_restart});
      check_rows(*reader);
    } catch (const Error&) {
    }
  }
  return 0;
}

}  // namespace gnmr::io::fuzzing
