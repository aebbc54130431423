// SPDX-License-Identifier: Apache-2.0
// What a low path makes of a matrix: numbers that were rounded, or real FP8 data with scales.
//
// Goals: the bits of gnmr/formats on every device; on a device the data and scales of gnmr/kernels/casts.h, both
// directions out of one read, without a wait; host work is shared among the front end's threads without changing a bit.
// Non-goals: state (amax_history.h), GEMMs (gemm.h).
//
// Matrices have two dimensions. Groups of elements that share a scale lie along the dimension that the GEMM sums over.
#pragma once

#include <array>
#include <cstdint>

#include "gnmr/formats/cast.h"
#include "gnmr/low/front_end.h"
#include "gnmr/low/matrix.h"
#include "gnmr/recipes/recipe.h"

namespace gnmr::low {

/// Which dimension of an operand its GEMM sums over.
enum class SumOver : std::uint8_t { columns, rows };

/// Along which dimension each GEMM sums, for its two operands as `operands_of` orders them.
constexpr std::array<SumOver, 2> sums_over(recipes::Product product) {
  switch (product) {
    case recipes::Product::forward:
      return {SumOver::columns, SumOver::columns};
    case recipes::Product::input_gradient:
      return {SumOver::columns, SumOver::rows};
    case recipes::Product::weight_gradient:
      break;
  }
  return {SumOver::rows, SumOver::rows};
}

/// How an operand becomes numbers.
struct NumberCast {
  const recipes::CastRule& rule;
  SumOver sum_over = SumOver::columns;
  float delayed_scale = 0;                    // with delayed scaling: the scale; 0: that of the matrix itself
  std::uint64_t seed = 0;                     // of stochastic rounding
  std::uint64_t transform_seed = 0;           // of the Hadamard transform's signs: the same for both operands
  formats::Statistics* statistics = nullptr;  // null: nothing is measured
};

/// The operand as rounded numbers: float32, of the same shape, perhaps stored by columns.
Matrix quantize_to_numbers(const FrontEnd& front_end, const Matrix& matrix, const NumberCast& cast);

/// Both sides of a matrix [rows, columns] in FP8.
struct Fp8Matrix {
  Fp8Side by_rows = {};     // [rows, columns]
  Fp8Side by_columns = {};  // [columns, rows]
  recipes::Grouping grouping = recipes::Grouping::tensor;

  bool defined() const { return by_rows.codes.defined() || by_columns.codes.defined(); }

  /// What a GEMM takes that sums so.
  const Fp8Side& side(SumOver sum_over) const { return sum_over == SumOver::columns ? by_rows : by_columns; }
};

/// How an operand becomes FP8 data. Pointers are to memory of the matrix's device.
struct CodeCast {
  const recipes::CastRule& rule;
  bool by_rows = false;
  bool by_columns = false;
  const float* given_scale = nullptr;                    // delayed: the scale; null: the matrix's own
  float* amax = nullptr;                                 // null: not wanted
  formats::Statistics* statistics_by_rows = nullptr;     // null: not wanted
  formats::Statistics* statistics_by_columns = nullptr;  // likewise
};

/// Whether operands that lie there become FP8 data where their rule leaves such: on devices with our kernels, and on
/// the host while `set_codes_on_host` says so, by the kernels' slow references.
bool makes_codes(const Matrix& matrix);
void set_codes_on_host(bool wanted);

/// The same, and the rule leaves FP8 data.
bool can_quantize_to_codes(const Matrix& matrix, const recipes::CastRule& rule);

/// The operand as FP8 data, where that holds.
Fp8Matrix quantize_to_codes(const FrontEnd& front_end, const Matrix& matrix, const CodeCast& cast);

/// The largest magnitude among the finite values; 0 where there is none.
float finite_amax(const FrontEnd& front_end, const Matrix& matrix);

/// The same, to memory of the matrix's device.
void find_amax(const FrontEnd& front_end, const Matrix& matrix, float* amax);

/// A matrix that waits in 8 bits (E4M3, 1x128).
struct SavedMatrix {
  Matrix codes;   // bytes, of the matrix's shape; where FP8 data are made, E4M3
  Matrix scales;  // float32, [rows, tiles]; there [tiles, rows]
};

/// The matrix in 8 bits.
SavedMatrix save_in_8_bits(const FrontEnd& front_end, const Matrix& matrix);

/// What 8 bits kept of it, in float32.
Matrix restore_from_8_bits(const FrontEnd& front_end, const SavedMatrix& saved);

}  // namespace gnmr::low
