// SPDX-License-Identifier: Apache-2.0
#include "gnmr/torch/low_path_hook.h"

#include "gnmr/torch/front_end.h"

namespace gnmr::nn {
namespace {

/// What `change` makes of a matrix, as a tensor; the same matrix where that is the same tensor.
template <class Change>
low::Matrix changed(const low::Matrix& matrix, const Change& change) {
  const at::Tensor before = tensor_of(matrix);
  const at::Tensor after = change(before);
  return after.is_same(before) ? matrix : matrix_of(after);
}

}  // namespace

low::Matrix LowPathHook::before_quantizing(const LowPathCall& call, recipes::Operand operand,
                                           const low::Matrix& matrix) {
  return changed(matrix, [&](const at::Tensor& tensor) { return before_cast(call, operand, tensor); });
}

low::Matrix LowPathHook::while_quantizing(const LowPathCall& call, recipes::Operand operand,
                                          const low::Matrix& matrix) {
  return changed(matrix, [&](const at::Tensor& tensor) { return in_cast(call, operand, tensor); });
}

low::Matrix LowPathHook::after_quantizing(const LowPathCall& call, recipes::Operand operand,
                                          const low::Matrix& quantized) {
  return changed(quantized, [&](const at::Tensor& tensor) { return after_cast(call, operand, tensor); });
}

low::Matrix LowPathHook::observed_for(const LowPathCall& call, recipes::Operand operand, const low::Matrix& matrix) {
  return changed(matrix, [&](const at::Tensor& tensor) { return observed(call, operand, tensor); });
}

low::Matrix LowPathHook::after_gemm(const LowPathCall& call, const low::Matrix& result) {
  return changed(result, [&](const at::Tensor& tensor) { return after_product(call, tensor); });
}

}  // namespace gnmr::nn
