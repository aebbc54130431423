// SPDX-License-Identifier: Apache-2.0
#include "gnmr/torch/squared_norm.h"

#include <ATen/ops/dot.h>

#include <cstdint>
#include <optional>

#include "gnmr/kernels/host_squares.h"
#include "gnmr/torch/device_stream.h"
#include "gnmr/torch/torch_threads.h"

namespace gnmr::nn {
namespace {

/// The type of its elements, where the loops on plain memory know it and the elements lie without gaps, in whatever
/// order: a sum does not mind the order of dimensions.
std::optional<kernels::ElementType> host_type(const at::Tensor& tensor) {
  if (!tensor.device().is_cpu() || !tensor.is_non_overlapping_and_dense()) return {};
  return kernel_type(tensor);
}

double sum_with_operators(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.detach().reshape({-1}).to(at::kDouble);
  return at::dot(flat, flat).item<double>();
}

}  // namespace

std::vector<double> squared_norms(std::span<const at::Tensor> tensors) {
  std::vector<double> sums(tensors.size(), 0.0);
  std::vector<kernels::Slice> slices;
  std::vector<std::size_t> others;
  for (std::size_t index = 0; index < tensors.size(); ++index) {
    const at::Tensor& tensor = tensors[index];
    if (!tensor.defined()) continue;
    if (const std::optional<kernels::ElementType> type = host_type(tensor)) {
      slices.push_back({tensor.const_data_ptr(), static_cast<std::uint64_t>(tensor.numel()), *type,
                        static_cast<std::uint32_t>(index)});
    } else {
      others.push_back(index);
    }
  }
  kernels::sum_squares_on_host(slices, sums, on_torch_threads(4));
  for (const std::size_t index : others) sums[index] = sum_with_operators(tensors[index]);
  return sums;
}

double squared_norm(const at::Tensor& tensor) { return squared_norms(std::span(&tensor, 1)).front(); }

}  // namespace gnmr::nn
