// SPDX-License-Identifier: Apache-2.0
// TensorBoard event files as traces: each scalar tag that fits the pattern is a unit.
//
// Goals: one file or the directory of a run, whose files follow each other; a file that is still being written, or
// whose writer was killed, is read as far as it goes. Non-goals: several runs at once; constant memory.
#pragma once

#include <memory>
#include <string>

#include "gnmr/io/byte_source.h"
#include "gnmr/io/trace.h"

namespace gnmr::io {

/// Reads one event file.
std::unique_ptr<TraceReader> read_tensorboard(ByteSource& source, const TraceOptions& options);

/// Reads the event files of a run's directory, in the order of their names, which begin with the time.
std::unique_ptr<TraceReader> read_tensorboard_directory(const std::string& path, const TraceOptions& options);

}  // namespace gnmr::io
