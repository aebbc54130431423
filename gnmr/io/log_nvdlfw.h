// SPDX-License-Identifier: Apache-2.0
// The statistics log of nvdlfw-inspect, which TransformerEngine's debug features write: a line a statistic.
//
//   2026-01-15 23:04:33,107 - INFO - layers.1.fc1_wgrad_l2_norm    iteration=000010    value=0.1234
//
// Goals: `gradient`, `wgrad` and `dgrad` L2 norms of each layer as units, in forward order.
// Non-goals: constant memory; other statistics.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "gnmr/io/byte_source.h"
#include "gnmr/io/trace.h"

namespace gnmr::io {

/// One statistic.
struct NvdlfwLine {
  std::string_view name;
  std::int64_t iteration = 0;
  std::string_view value;
};

/// Whether `line` is such a line; fills `parsed` with views of it.
bool parse_nvdlfw_line(std::string_view line, NvdlfwLine& parsed);

/// Reads such a log.
std::unique_ptr<TraceReader> read_nvdlfw_log(ByteSource& source, const TraceOptions& options);

}  // namespace gnmr::io
