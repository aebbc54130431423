// SPDX-License-Identifier: Apache-2.0
// JSON Lines: an object per line, with a step and fields of which some are gradient norms.
//
// Goals: nested objects (`norms.layers.0.q`), units that appear late, NaN as Python writes it; constant memory.
// Non-goals: one line per unit. The names of the units are known only after a first pass, so what cannot be rewound is
// kept in a temporary file.
#pragma once

#include <memory>

#include "gnmr/io/byte_source.h"
#include "gnmr/io/row_source.h"
#include "gnmr/io/trace.h"

namespace gnmr::io {

/// The rows of such a log; makes the first pass at once.
std::unique_ptr<RowSource> make_jsonl_log(std::unique_ptr<ByteSource> source, const TraceOptions& options);

}  // namespace gnmr::io
