// SPDX-License-Identifier: Apache-2.0
// The sum of the squares of a matrix on the device, added to what is there.
//
// Goals: one pass at the memory's speed; the same bits in every run on the same address modulo 16; nothing waits for
// the device and nothing is allocated. Squares are summed in double; those of bfloat16 elements eight at a time in
// float32 first, where they neither overflow nor vanish: sums are within 1e-6 of themselves. Non-goals: gaps between
// rows, float16.
//
// All pointers are to device memory and must live until the stream has passed; a workspace begins at a multiple of 16
// bytes, its contents do not matter, and no other stream may use it meanwhile. An `Error`, with nothing done, as
// `check_rows` has it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gnmr/kernels/row_errors.h"

namespace gnmr::kernels {

/// Bytes of workspace for that many elements.
std::size_t add_square_workspace_bytes(std::uint64_t count);

/// Adds the squares of all elements to `sum`, which stays finite exactly where every element is.
void add_square(const RowsView& matrix, double* sum, void* workspace, void* stream);

}  // namespace gnmr::kernels
