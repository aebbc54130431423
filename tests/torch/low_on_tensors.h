// SPDX-License-Identifier: Apache-2.0
// Functions of gnmr/low on tensors, as its tests beside torch call them.
#pragma once

#include <ATen/ATen.h>

#include <optional>
#include <vector>

#include "gnmr/low/device_numbers.h"
#include "gnmr/low/error_sums.h"
#include "gnmr/low/gemm.h"
#include "gnmr/low/operand.h"
#include "gnmr/low/quantize.h"
#include "gnmr/low/row_probe.h"
#include "gnmr/low/row_sample.h"
#include "gnmr/low/thin_product.h"
#include "gnmr/recipes/host_cast.h"
#include "gnmr/torch/cast_operators.h"
#include "gnmr/torch/device_numbers.h"
#include "gnmr/torch/front_end.h"
#include "gnmr/torch/shared_input.h"

namespace gnmr::nn {

using low::Fp8Matrix;
using low::Fp8Side;
using low::HostNumbers;
using low::LowOperand;
using low::OperandUse;
using low::SumOver;
using OperandCast = low::NumberCast;

inline at::Tensor cast_operand(const at::Tensor& matrix, const OperandCast& cast) {
  return tensor_of(low::quantize_to_numbers(front_end(), matrix_of(matrix), cast));
}

inline float finite_amax(const at::Tensor& matrix) { return low::finite_amax(front_end(), matrix_of(matrix)); }

inline at::Tensor hadamard_transform(const at::Tensor& matrix, std::int64_t size, std::uint64_t seed) {
  return multiply_stretches(matrix, recipes::hadamard_matrix(static_cast<std::uint32_t>(size), seed), size);
}

inline low::Fp8Matrix cast_to_fp8(const at::Tensor& matrix, const low::CodeCast& cast) {
  return low::quantize_to_codes(front_end(), matrix_of(matrix), cast);
}

inline at::Tensor values_of(const low::Fp8Side& side, recipes::Grouping grouping) {
  return tensor_of(front_end().values_of(side, grouping));
}

inline bool can_multiply(const low::Fp8Side& left, recipes::Grouping left_grouping, const low::Fp8Side& right,
                         recipes::Grouping right_grouping) {
  return low::plan_gemm(left, left_grouping, right, right_grouping, low::Type::float32).by !=
         kernels::Multiplier::numbers;
}

/// left x right^T with all bits of the sums.
inline at::Tensor multiply(const low::Fp8Side& left, const low::Fp8Side& right, recipes::Grouping right_grouping,
                           low::Type type) {
  const recipes::Grouping left_grouping =
      right_grouping == recipes::Grouping::block ? recipes::Grouping::tile : right_grouping;
  kernels::Fp8Plan plan = low::plan_gemm(left, left_grouping, right, right_grouping, type);
  plan.may_sum_fast = false;
  return tensor_of(low::multiply_codes(front_end(), left, right, right_grouping, type, plan));
}

struct SavedMatrix {
  at::Tensor codes, scales;
};

inline SavedMatrix as_tensors(const low::SavedMatrix& saved) {
  return {tensor_of(saved.codes), tensor_of(saved.scales)};
}

inline SavedMatrix save_in_8_bits(const at::Tensor& matrix) {
  return as_tensors(low::save_in_8_bits(front_end(), matrix_of(matrix)));
}

inline at::Tensor restore_from_8_bits(const SavedMatrix& saved) {
  return tensor_of(low::restore_from_8_bits(front_end(), {matrix_of(saved.codes), matrix_of(saved.scales)}));
}

inline at::Tensor thin_product(const at::Tensor& matrix, const at::Tensor& thin) {
  return tensor_of(low::thin_product(front_end(), matrix_of(matrix), matrix_of(thin)));
}

inline void add_error(const at::Tensor& low, const at::Tensor& high, low::ErrorSums& sums) {
  low::add_error(front_end(), matrix_of(low), matrix_of(high), {.sums = &sums});
}

/// A patrol of a result [tokens, n] of left x weight^T, with a weight [n, m].
inline void add_rows_error(const at::Tensor& low, const at::Tensor& left, const at::Tensor& weight, std::uint64_t seed,
                           low::ErrorSums& sums) {
  const low::WeightProducts products = low::project_weight(front_end(), matrix_of(weight), seed, std::nullopt);
  low::add_rows_error(front_end(), matrix_of(low), matrix_of(left), products.of_inputs, {seed, ~seed}, {.sums = &sums});
}

/// A patrol of a weight's gradient.
inline void add_weight_error(const at::Tensor& low, const at::Tensor& gradient, const at::Tensor& input,
                             std::uint64_t seed, low::ErrorSums& sums) {
  const low::Matrix signs = low::project_input(front_end(), matrix_of(input), seed);
  low::add_weight_error(front_end(), matrix_of(low), matrix_of(gradient), signs, {seed, ~seed}, {.sums = &sums});
}

inline at::Tensor random_signs(std::int64_t length, std::uint64_t seed) {
  return tensor_of(low::random_signs(front_end(), length, seed));
}

/// Of an operand that several layers share: its numbers.
inline at::Tensor shared_values(SharedInput& shared, low::LinearPaths& paths, const OperandUse& use,
                                const at::Tensor& matrix) {
  return tensor_of(shared.operands().operand(front_end(), paths, use, matrix_of(matrix)).values);
}

/// What a layer has measured on its device.
inline HostNumbers numbers_on_host(const low::LinearPaths& paths) {
  paths.numbers->judge_samples();
  return send_numbers(*paths.numbers, std::make_shared<PinnedPool>()).wait();
}

}  // namespace gnmr::nn
