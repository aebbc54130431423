// SPDX-License-Identifier: Apache-2.0
// Threads for loops on host memory.
//
// Goals: threads that sleep between calls; small work stays on the caller's thread; a forked child makes its own.
// Non-goals: results that depend on the number of threads: whoever uses it takes care of that.
#pragma once

#include <cstddef>

#include "gnmr/core/parallel_for.h"

namespace gnmr::python {

/// Shares work among at most so many threads, the caller's included, each taking at least `pieces_per_thread`.
ParallelFor on_threads(std::size_t threads, std::size_t pieces_per_thread);

}  // namespace gnmr::python
