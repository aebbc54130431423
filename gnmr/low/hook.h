// SPDX-License-Identifier: Apache-2.0
// Where a laboratory changes a low path: before, in and after the quantization of an operand, in its amax history, and
// behind the GEMM.
//
// Goals: experiments with known faults without a word about them in the layer. Non-goals: what a fault is; the high
// path, which no hook can change.
#pragma once

#include <cstdint>

#include "gnmr/low/matrix.h"
#include "gnmr/recipes/recipe.h"

namespace gnmr::low {

/// Which low path is running.
struct LowPathCall {
  std::uint32_t layer = 0;  // index of the watched layer, in forward order
  recipes::Product product = recipes::Product::forward;
  std::int64_t step = 0;
  std::int64_t micro_batch = 0;
  bool rerun = false;  // the step runs again, in a trial or a replay
};

/// Each function gives back the matrix that is to be used from there on: another one, or the same one where it has
/// nothing to do; it never changes the matrix in place. Calls come from the thread that runs forward or backward.
class MatrixHook {
 public:
  virtual ~MatrixHook() = default;

  /// An operand that is about to be quantized. Statistics are of what comes back: they cannot see the change.
  virtual Matrix before_quantizing(const LowPathCall& call, recipes::Operand operand, const Matrix& matrix) = 0;

  /// The same, as a part of the quantization: its statistics compare with `matrix`, so they see the change.
  virtual Matrix while_quantizing(const LowPathCall& call, recipes::Operand operand, const Matrix& matrix) = 0;

  /// Whether `after_quantizing` has something to do here. Where not, FP8 data need not become numbers.
  virtual bool changes_quantized(const LowPathCall&, recipes::Operand) const { return true; }

  /// The quantized operand as numbers. Statistics have been taken.
  virtual Matrix after_quantizing(const LowPathCall& call, recipes::Operand operand, const Matrix& quantized) = 0;

  /// Whether any of these ever does something. Where not, GEMMs share quantized operands as they do without a hook.
  virtual bool changes_operands() const { return true; }

  /// The matrix whose amax the history of delayed scaling takes in for an operand.
  virtual Matrix observed_for(const LowPathCall&, recipes::Operand, const Matrix& matrix) { return matrix; }

  /// The result of the GEMM.
  virtual Matrix after_gemm(const LowPathCall& call, const Matrix& result) = 0;
};

}  // namespace gnmr::low
