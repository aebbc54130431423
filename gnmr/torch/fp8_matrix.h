// SPDX-License-Identifier: Apache-2.0
// Matrices in real FP8 on a CUDA device: codes with their scales, and products of them.
//
// Goals: the codes and scales of gnmr/formats, byte for byte (gnmr/kernels/casts.h), both directions out of one read;
// products by at::_scaled_mm or our own kernel where the device has them. Nothing waits for the device. Non-goals:
// other formats and devices (operand_cast.h), what is remembered (linear_paths.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "gnmr/formats/cast.h"
#include "gnmr/recipes/recipe.h"

namespace gnmr::nn {

/// A matrix seen from a product, as [m, k]: k is what the product sums over.
struct Fp8Side {
  at::Tensor codes;   // a float8 type, rows without gaps; undefined: this side was not asked for
  at::Tensor scales;  // one number; m numbers (row); [tiles, m] (tile); rows of blocks (block)
};

/// Both sides of a matrix [rows, columns] that was cast.
struct Fp8Matrix {
  Fp8Side by_rows;     // [rows, columns]
  Fp8Side by_columns;  // [columns, rows]
  recipes::Grouping grouping = recipes::Grouping::tensor;

  bool defined() const { return by_rows.codes.defined() || by_columns.codes.defined(); }
};

/// What is wanted of a cast.
struct Fp8Cast {
  const recipes::CastRule& rule;
  bool by_rows = false;
  bool by_columns = false;
  at::Tensor given_scale = {};                        // delayed: one number on the device; undefined: the matrix's own
  float* amax = nullptr;                              // on the device; null: not wanted
  formats::Statistics* statistics_by_rows = nullptr;  // on the device; null: not wanted
  formats::Statistics* statistics_by_columns = nullptr;  // likewise
};

/// Whether a matrix can be cast so: the kernels run on its device, and have its type and the rule's format.
bool can_cast_to_fp8(const at::Tensor& matrix, const recipes::CastRule& rule);

/// Casts a matrix for which that holds.
Fp8Matrix cast_to_fp8(const at::Tensor& matrix, const Fp8Cast& cast);

/// The largest magnitude among the finite values, to device memory.
void find_amax(const at::Tensor& matrix, float* amax);

/// Whether at::_scaled_mm (or a kernel of ours) multiplies two sides that were cast so, as left [m, k] x right [n,
/// k]^T.
bool can_multiply(const Fp8Side& left, recipes::Grouping left_grouping, const Fp8Side& right,
                  recipes::Grouping right_grouping);

/// left x right^T, [m, n], where that holds. `fast`: sums are kept with fewer bits where the device offers that.
at::Tensor multiply(const Fp8Side& left, const Fp8Side& right, recipes::Grouping right_grouping, at::ScalarType type,
                    bool fast);

/// The numbers that a side stands for, float32 [m, k].
at::Tensor values_of(const Fp8Side& side, recipes::Grouping grouping);

}  // namespace gnmr::nn
