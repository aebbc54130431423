// SPDX-License-Identifier: Apache-2.0
// How the program's allocator treats memory that is free for a moment.
#pragma once

namespace gnmr::app {

/// Tensors of a step are freed, and asked for again in the next one. Memory that goes back to the system in between
/// comes back as pages to be cleared: a tenth of a small model's step. After this it stays (glibc only).
void keep_memory();

}  // namespace gnmr::app
