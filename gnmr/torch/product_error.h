// SPDX-License-Identifier: Apache-2.0
// How far a product's low path is from its high path.
//
// In full: both results are there. By projection (patrol): the low result is there, and of the high one only its
// product with a few random vectors of signs, which costs a few matrix-vector products instead of a matrix product
// (Freivalds' check of a product); rows of tokens are added up in groups first, with random signs too, so that every
// row counts. The expected square of a projected difference is that of the whole difference.
//
// Goals: nothing from the quantizer, only what every backend has; sums that ranks and micro-batches can add.
// Non-goals: what error is too large (gnmr/core/judge.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "gnmr/recipes/recipe.h"

namespace gnmr::nn {

/// Sums of squares over the micro-batches of one step.
struct ErrorSums {
  double difference = 0;  // of low - high; infinite where the low result is not finite and the high one is
  double reference = 0;   // of high
  bool measured = false;

  /// The relative error; NaN where nothing was measured.
  double error() const;
};

/// Vectors that a result with rows of tokens is projected on, and those of a weight's gradient.
inline constexpr std::int64_t kProbeVectors = 4;
inline constexpr std::int64_t kWeightProbeVectors = 2;

/// Adds the difference of two results. Nothing is added where the high one is not finite.
void add_error(const at::Tensor& low, const at::Tensor& high, ErrorSums& sums);

/// Adds the difference of low - high for a result [tokens, n] of the low path of left [tokens, m] x right [m, n].
void add_rows_error(const at::Tensor& low, const at::Tensor& left, const at::Tensor& right, std::uint64_t seed,
                    ErrorSums& sums);

/// The same for a low gradient of a weight [m, n]: of the high one only `projected` = high x signs [m, k] is there.
void add_projected_error(const at::Tensor& low, const at::Tensor& signs, const at::Tensor& projected, ErrorSums& sums);

/// A matrix of 1 and -1 by chance; a pure function of shape and seed, of the type and on the device of `like`.
at::Tensor random_signs(std::int64_t rows, std::int64_t columns, std::uint64_t seed, const at::Tensor& like);

/// Multiply-adds that a patrol of all three products of a layer costs in a micro-batch.
double probe_multiply_adds(std::int64_t tokens, std::int64_t in_features, std::int64_t out_features);

/// Bytes of large matrices that it reads there, where elements have so many bytes: what it costs on a GPU.
double probe_bytes(std::int64_t tokens, std::int64_t in_features, std::int64_t out_features, double element_bytes);

}  // namespace gnmr::nn
