// SPDX-License-Identifier: Apache-2.0
// Casts of a product's operands: what a low path makes of a matrix.
//
// Goals: the bits of gnmr/formats on every device; the work is shared among torch's threads without changing a bit.
// Non-goals: remembering anything (linear_paths.h), products.
//
// Matrices are float32 with two dimensions. Groups of elements that share a scale lie along the dimension that the
// product sums over.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "gnmr/formats/cast.h"
#include "gnmr/recipes/recipe.h"

namespace gnmr::nn {

/// Which dimension of an operand its product sums over.
enum class SumOver : std::uint8_t { columns, rows };

/// One cast of one operand.
struct OperandCast {
  const recipes::CastRule& rule;
  SumOver sum_over = SumOver::columns;
  float delayed_scale = 0;                    // with delayed scaling: the scale
  std::uint64_t seed = 0;                     // of stochastic rounding
  std::uint64_t transform_seed = 0;           // of the Hadamard transform's signs: the same for both operands
  formats::Statistics* statistics = nullptr;  // null: nothing is measured
};

/// The operand as the cast leaves it: of the same shape, perhaps stored by columns.
at::Tensor cast_operand(const at::Tensor& matrix, const OperandCast& cast);

/// The same made of torch's own operators, for devices other than the CPU.
at::Tensor cast_operand_with_operators(const at::Tensor& matrix, const OperandCast& cast);

/// The largest magnitude among the finite values; 0 where there is none.
float finite_amax(const at::Tensor& matrix);

/// Multiplies stretches of `size` columns by a Hadamard matrix with random signs, so that outliers are spread. Sums
/// over the columns of two matrices with the same transform are what they were; what is left of `size` stays.
at::Tensor hadamard_transform(const at::Tensor& matrix, std::int64_t size, std::uint64_t seed);

/// Codes and scales of a matrix that waits in 8 bits (E4M3, 1x128).
struct SavedMatrix {
  at::Tensor codes;   // uint8, of the matrix's shape; on a CUDA device with kernels a float8 type
  at::Tensor scales;  // float32, [rows, tiles]; there [tiles, rows]
};

/// The matrix in 8 bits.
SavedMatrix save_in_8_bits(const at::Tensor& matrix);

/// What 8 bits kept of it, in float32.
at::Tensor restore_from_8_bits(const SavedMatrix& saved);

}  // namespace gnmr::nn
