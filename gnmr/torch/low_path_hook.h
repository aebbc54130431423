// SPDX-License-Identifier: Apache-2.0
// Where a laboratory may reach into a low path: before, in and after quantization, in the amax history, and behind the
// GEMM; on tensors.
//
// Goals: experiments with known faults without a word about them in the layer. Non-goals: what a fault is
// (gnmr/lab/injection); the high path, which no hook can reach.
#pragma once

#include <ATen/core/Tensor.h>

#include "gnmr/low/hook.h"
#include "gnmr/recipes/recipe.h"

namespace gnmr::nn {

using low::LowPathCall;

/// Each function gives back the tensor that is to be used from there on: another one, or the same one where it has
/// nothing to do; it never changes the tensor in place. Calls come from the thread that runs forward or backward.
class LowPathHook : public low::MatrixHook {
 public:
  /// An operand that is about to be quantized. The evidence is of what comes back: it cannot see the change.
  virtual at::Tensor before_cast(const LowPathCall& call, recipes::Operand operand, const at::Tensor& matrix) = 0;

  /// The same, as a part of quantization: its evidence compares with `matrix`, so it sees the change.
  virtual at::Tensor in_cast(const LowPathCall& call, recipes::Operand operand, const at::Tensor& matrix) = 0;

  /// Whether `after_cast` has something to do here. If not, an operand in real FP8 need not be dequantized.
  virtual bool changes_casts(const LowPathCall&, recipes::Operand) const { return true; }

  /// The dequantized operand. The evidence has been taken.
  virtual at::Tensor after_cast(const LowPathCall& call, recipes::Operand operand, const at::Tensor& cast) = 0;

  /// The tensor whose amax the history of delayed scaling takes in for an operand.
  virtual at::Tensor observed(const LowPathCall&, recipes::Operand, const at::Tensor& matrix) { return matrix; }

  /// The result of the GEMM.
  virtual at::Tensor after_product(const LowPathCall& call, const at::Tensor& result) = 0;

 private:
  low::Matrix before_quantizing(const LowPathCall& call, recipes::Operand operand, const low::Matrix& matrix) final;
  low::Matrix while_quantizing(const LowPathCall& call, recipes::Operand operand, const low::Matrix& matrix) final;
  bool changes_quantized(const LowPathCall& call, recipes::Operand operand) const final {
    return changes_casts(call, operand);
  }
  low::Matrix after_quantizing(const LowPathCall& call, recipes::Operand operand, const low::Matrix& quantized) final;
  low::Matrix observed_for(const LowPathCall& call, recipes::Operand operand, const low::Matrix& matrix) final;
  low::Matrix after_gemm(const LowPathCall& call, const low::Matrix& result) final;
};

}  // namespace gnmr::nn
