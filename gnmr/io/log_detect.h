// SPDX-License-Identifier: Apache-2.0
// What kind of trace a file is, from its first bytes.
//
// Goals: content decides, not the name; from a pipe no more is waited for than is needed.
// Non-goals: certainty. `--format` overrules it.
#pragma once

#include "gnmr/io/byte_source.h"
#include "gnmr/io/trace.h"

namespace gnmr::io {

/// Looks at the start of `source` and says what it is, never `automatic`; an `Error` if that is not clear.
TraceFormat detect_trace_format(PeekableSource& source);

}  // namespace gnmr::io
