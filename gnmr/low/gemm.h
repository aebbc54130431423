// SPDX-License-Identifier: Apache-2.0
// GEMMs of quantized operands: who multiplies them, and as what.
//
// Goals: FP8 data are multiplied as they are where somebody can (the library's scaled GEMM or our own kernel, as
// gnmr/kernels/fp8_product.h plans it), else by the numbers that they stand for. Non-goals: quantizing (quantize.h).
#pragma once

#include "gnmr/low/front_end.h"
#include "gnmr/low/matrix.h"
#include "gnmr/low/quantize.h"
#include "gnmr/recipes/recipe.h"

namespace gnmr::low {

/// A matrix [rows, columns] as a low path has it.
struct LowOperand {
  Matrix values = {};  // numbers; undefined: FP8 data
  Fp8Matrix codes = {};

  bool defined() const { return values.defined() || codes.defined(); }
};

/// The operand as numbers, of the matrix's shape, as a GEMM sees it that sums over these.
Matrix values_for(const FrontEnd& front_end, const LowOperand& operand, SumOver sum_over);

/// How two sides are multiplied, as left [m, k] x right [n, k]^T, for a result of this type.
kernels::Fp8Plan plan_gemm(const Fp8Side& left, recipes::Grouping left_grouping, const Fp8Side& right,
                           recipes::Grouping right_grouping, Type type);

/// The same GEMM by that plan, which is not `numbers`: [m, n], of this type.
Matrix multiply_codes(const FrontEnd& front_end, const Fp8Side& left, const Fp8Side& right,
                      recipes::Grouping right_grouping, Type type, kernels::Fp8Plan plan);

/// A layer's low GEMM of two operands, [m, n], of this type.
Matrix low_gemm(const FrontEnd& front_end, recipes::Product product, const LowOperand& left, const LowOperand& right,
                Type type);

}  // namespace gnmr::low
