// SPDX-License-Identifier: Apache-2.0
// What faults make of a tensor.
//
// "Largest" is the largest finite magnitude of the tensor. A tensor of no elements comes back as it is.
//
// Goals: pure functions of tensor, numbers and a random stream; any floating type; the result is a new tensor on the
// same device, the argument is never changed. Non-goals: when and where (fault_hook.h).
#pragma once

#include <ATen/core/Tensor.h>

#include "gnmr/run/random_stream.h"

namespace gnmr::lab {

/// The large elements: those above the largest divided by this.
inline constexpr double kLargeFrom = 8;

/// The largest finite magnitude of a matrix with elements, on its device: nothing waits for it.
at::Tensor largest_of(const at::Tensor& matrix);

/// The largest finite magnitude; 0 where there is none.
double largest_magnitude(const at::Tensor& matrix);

/// Magnitudes are cut at `share` of the largest; infinities too.
at::Tensor cut_at_share(const at::Tensor& matrix, double share);

/// Magnitudes are cut at `limit`.
at::Tensor cut_at(const at::Tensor& matrix, double limit);

/// The FP8 data (E4M3) of a matrix with one scale, which maps the largest to 448.
at::Tensor fp8_codes(const at::Tensor& matrix);

/// The numbers that FP8 data stand for with the scale that maps `largest` to 448, as float32.
at::Tensor values_of_codes(const at::Tensor& codes, const at::Tensor& largest);

/// Elements above 1/8 of the largest are multiplied; by infinity too.
at::Tensor multiply_large(const at::Tensor& matrix, double factor);

/// Elements below `share` of the largest become 0; a share above 1 is as 1.
at::Tensor flush_below_share(const at::Tensor& matrix, double share);

/// In a random share of the elements, at least one, an exponent bit is flipped: that of an 8-bit code (E4M3) which has
/// four binades of headroom above the largest, as a scale has that was made for larger values. So an element becomes 2,
/// 4, 16 or 256 times larger or smaller, stays below 32 times the largest, and a zero stays zero.
at::Tensor flip_exponent_bits(const at::Tensor& matrix, double share, run::RandomStream& random);

/// A random share of the rows, at least one, is replaced by other rows of the matrix, with either sign. Where there is
/// one row only its sign changes.
at::Tensor replace_rows(const at::Tensor& matrix, double share, run::RandomStream& random);

/// A random element becomes NaN.
at::Tensor put_nan(const at::Tensor& matrix, run::RandomStream& random);

}  // namespace gnmr::lab
