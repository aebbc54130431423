// SPDX-License-Identifier: Apache-2.0
// How far a GEMM's low path is from its high path.
//
// In full: both results are there. By projection (patrol): the low result is there, and of the high one only its
// product with a few random vectors of signs, which costs a few matrix-vector products instead of a GEMM (Freivalds'
// check of a product); rows of tokens are added up in groups first, with random signs too, so that every row counts.
// The expected square of a projected difference is that of the whole difference.
//
// Goals: nothing from the quantizer, only what every backend has; sums that ranks and micro-batches can add; on a
// device the same sums, added up there without a wait. Non-goals: what error is too large (gnmr/core).
#pragma once

#include <cstdint>

#include "gnmr/kernels/compare.h"
#include "gnmr/low/front_end.h"
#include "gnmr/low/matrix.h"

namespace gnmr::low {

/// Sums of squares over the micro-batches of one step.
struct ErrorSums {
  double difference = 0;  // of low - high; infinite where the low result is not finite and the high one is
  double reference = 0;   // of high
  bool measured = false;

  /// The relative error; NaN where nothing was measured.
  double error() const;
};

/// Where the sums of one GEMM are: on the host or, where `totals` is not null, in the memory of a device.
struct ErrorPlace {
  ErrorSums* sums = nullptr;
  kernels::ErrorTotals* totals = nullptr;
};

/// Vectors that a result with rows of tokens is projected on, and those of a weight's gradient.
inline constexpr std::int64_t kProbeVectors = 4;
inline constexpr std::int64_t kWeightProbeVectors = 2;

/// The sum of the squares of all elements of a matrix in host memory, in double.
double squared_norm(const FrontEnd& front_end, const Matrix& matrix);

/// Adds the squares of all elements to `sum` in the memory of the matrix's device.
void add_square(const FrontEnd& front_end, const Matrix& matrix, double* sum);

/// Adds the difference of two results. Nothing is added where the high one is not finite.
void add_error(const FrontEnd& front_end, const Matrix& low, const Matrix& high, const ErrorPlace& place);

/// Adds the difference of low - high for a result [tokens, n] of the low path of left [tokens, m] x weight; the weight
/// is [m, n], or [n, m] where it is `is_transposed`.
void add_rows_error(const FrontEnd& front_end, const Matrix& low, const Matrix& left, const Matrix& weight,
                    bool is_transposed, std::uint64_t seed, const ErrorPlace& place);

/// The input [tokens, m] times the signs that the gradient of a weight [n, m] is projected on.
Matrix project_input(const FrontEnd& front_end, const Matrix& input, std::uint64_t seed);

/// Adds the difference of low - high for a weight's gradient [n, m] of the low path of gradient^T x input.
void add_weight_error(const FrontEnd& front_end, const Matrix& low, const Matrix& gradient,
                      const Matrix& projected_input, std::uint64_t seed, const ErrorPlace& place);

/// The same on the host where of the high one only `projected` = high x signs [n, k] is there.
void add_projected_error(const FrontEnd& front_end, const Matrix& low, const Matrix& signs, const Matrix& projected,
                         ErrorSums& sums);

/// A matrix of 1 and -1 by chance in host memory; a pure function of shape and seed, of the type of `like`.
Matrix random_signs(const FrontEnd& front_end, std::int64_t rows, std::int64_t columns, std::uint64_t seed,
                    const Matrix& like);

/// Multiply-adds that a patrol of all three GEMMs of a layer costs in a micro-batch.
double probe_multiply_adds(std::int64_t tokens, std::int64_t in_features, std::int64_t out_features);

/// Bytes of large matrices that it reads there, where elements have so many bytes: what it costs on a GPU.
double probe_bytes(std::int64_t tokens, std::int64_t in_features, std::int64_t out_features, double element_bytes);

}  // namespace gnmr::low
