// SPDX-License-Identifier: Apache-2.0
// How far a GEMM's low result is from a high one that is not there: what a patrol measures.
//
//   forward  Y [tokens, out]:  rows of Y s with rows of X (W^T s)
//   dgrad    dX [tokens, in]:  rows of dX v with rows of dY (W v)
//   wgrad    dW [out, in]:     rows of dW u with the same columns of dY, transposed, times (X u)
//
// s and v are two random vectors of signs each, u four, and of each result 256 random rows are looked at
// (gnmr/kernels/row_errors.h says how they are judged). Only these rows are read of Y, X, dX, dY and dW; W is read once
// for both of its products, which all micro-batches of a step share, and X once for X u.
//
// Goals: about a hundredth of a step of wide layers; every row of every result has the same chance to be looked at; on
// the host the same bits whatever the number of threads. Non-goals: which layers are measured (patrol.h).
#pragma once

#include <cstdint>
#include <optional>

#include "gnmr/low/error_sums.h"
#include "gnmr/low/front_end.h"
#include "gnmr/low/matrix.h"

namespace gnmr::low {

inline constexpr auto kSignVectors = static_cast<std::int64_t>(kernels::kSignVectors);
inline constexpr auto kOutputSignVectors = static_cast<std::int64_t>(kernels::kOutputSignVectors);

/// What a measurement is a function of.
struct ProbeSeeds {
  std::uint64_t signs = 0;
  std::uint64_t rows = 0;
};

/// Products of a weight with signs: on the host matrices with a column per vector, on a device vectors one after the
/// other. Undefined: not made.
struct WeightProducts {
  Matrix of_inputs;   // W^T s, for the forward GEMM
  Matrix of_outputs;  // W v, for dgrad
};

/// Those whose signs have a seed, in one pass over the weight.
WeightProducts project_weight(const FrontEnd& front_end, const Matrix& weight,
                              std::optional<std::uint64_t> forward_signs, std::optional<std::uint64_t> dgrad_signs);

/// Adds the error of a result [tokens, n] of the low path of left [tokens, m] x right, where `right_signs` are a
/// weight's products.
void add_rows_error(const FrontEnd& front_end, const Matrix& low, const Matrix& left, const Matrix& right_signs,
                    const ProbeSeeds& seeds, const ErrorPlace& place);

/// The input [tokens, m] times the signs that the gradient of a weight [n, m] is projected on.
Matrix project_input(const FrontEnd& front_end, const Matrix& input, std::uint64_t signs);

/// Adds the error of a weight's gradient [n, m] of the low path of gradient^T x input.
void add_weight_error(const FrontEnd& front_end, const Matrix& low, const Matrix& gradient, const Matrix& input_signs,
                      const ProbeSeeds& seeds, const ErrorPlace& place);

/// A matrix [length, vectors] of 1 and -1 by chance in host memory: a pure function of the arguments.
Matrix random_signs(const FrontEnd& front_end, std::int64_t length, std::uint64_t seed,
                    std::int64_t vectors = kSignVectors);

/// Multiply-adds that a patrol of all three GEMMs of a layer costs in a micro-batch.
double probe_multiply_adds(std::int64_t tokens, std::int64_t in_features, std::int64_t out_features);

/// Bytes that it reads there, where elements have so many bytes: what it costs on a GPU.
double probe_bytes(std::int64_t tokens, std::int64_t in_features, std::int64_t out_features, double element_bytes);

}  // namespace gnmr::low
