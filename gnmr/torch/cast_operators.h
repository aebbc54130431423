// SPDX-License-Identifier: Apache-2.0
// Quantized operands as torch operators make them, for devices that our loops and kernels do not reach.
//
// Goals: the bits of gnmr/formats. Non-goals: speed, stochastic rounding.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "gnmr/low/quantize.h"

namespace gnmr::nn {

/// The operand as rounded numbers, of the shape of a float32 matrix.
at::Tensor cast_operand_with_operators(const at::Tensor& matrix, const low::NumberCast& cast);

/// A copy whose stretches of `size` columns are multiplied by a matrix [size, size], given row by row; what is left of
/// `size` stays.
at::Tensor multiply_stretches(const at::Tensor& matrix, const std::vector<float>& entries, std::int64_t size);

}  // namespace gnmr::nn
