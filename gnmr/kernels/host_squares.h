// SPDX-License-Identifier: Apache-2.0
// The sums of squares of all units' gradients, of gradients in host memory.
//
//   sum_squares_on_host(slices, sums, parallel_for);   // sums[unit], as norms.h has them on a device
//
// Goals: the speed of the memory; sums in double, so that a finite gradient has a finite one; the same bits whatever
// the number of threads and the machine. Non-goals: threads of its own: the caller brings them (torch's, or a pool).
#pragma once

#include <span>

#include "gnmr/core/parallel_for.h"
#include "gnmr/kernels/chunks.h"

namespace gnmr::kernels {

/// sums[unit] becomes the sum of the squares of all its elements, slice by slice in their order; 0 where it has none. A
/// slice without an address is skipped. An `Error`, with nothing done, for a unit that has no place in `sums`.
void sum_squares_on_host(std::span<const Slice> slices, std::span<double> sums, const ParallelFor& parallel_for);

/// The sum of the squares of one slice's elements, on the thread that asks; the same bits.
double sum_squares_on_host(const Slice& slice);

}  // namespace gnmr::kernels
