// SPDX-License-Identifier: Apache-2.0
// Hugging Face's trainer_state.json: one document whose `log_history` has an entry a logged step.
//
// Goals: every field of an entry that fits the pattern is a unit. Non-goals: constant memory; the file is a few
// megabytes at most.
#pragma once

#include <memory>

#include "gnmr/io/byte_source.h"
#include "gnmr/io/trace.h"

namespace gnmr::io {

/// Reads such a document.
std::unique_ptr<TraceReader> read_trainer_state(ByteSource& source, const TraceOptions& options);

}  // namespace gnmr::io
