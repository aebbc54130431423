// SPDX-License-Identifier: Apache-2.0
// product_error.h on a CUDA device: the same sums, added up there, without a wait.
//
// Goals: the memory's speed (gnmr/kernels/compare.h, thin_rows.h); the same groups and signs as on the CPU. Non-goals:
// matrices of other types than float32 and bfloat16.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "gnmr/kernels/compare.h"

namespace gnmr::nn {

/// Vectors of signs, float32 [vectors, length] on the device of `like`: the transposed matrix of `random_signs`.
at::Tensor sign_vectors(std::int64_t length, std::int64_t vectors, std::uint64_t seed, const at::Tensor& like);

/// matrix [m, n] times vectors [k, n], as vectors [k, m].
at::Tensor times_vectors(const at::Tensor& matrix, const at::Tensor& vectors);

/// The transposed matrix [m, n] times vectors [k, m], as vectors [k, n].
at::Tensor transposed_times_vectors(const at::Tensor& matrix, const at::Tensor& vectors);

/// As the functions of the same name in product_error.h. `weight` is [out, in]; the right matrix is the weight, or the
/// transposed one.
void add_error(const at::Tensor& low, const at::Tensor& high, kernels::ErrorTotals* totals);
void add_rows_error(const at::Tensor& low, const at::Tensor& left, const at::Tensor& weight, bool is_transposed,
                    std::uint64_t seed, kernels::ErrorTotals* totals);
void add_projected_error(const at::Tensor& low, const at::Tensor& signs, const at::Tensor& projected,
                         kernels::ErrorTotals* totals);

/// Adds the squares of all elements to a sum on the device.
void add_square(const at::Tensor& matrix, double* sum);

}  // namespace gnmr::nn
