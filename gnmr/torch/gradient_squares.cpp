// SPDX-License-Identifier: Apache-2.0
#include "gnmr/torch/gradient_squares.h"

#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>

#include <optional>

#include "gnmr/kernels/device.h"
#include "gnmr/kernels/norms.h"
#include "gnmr/torch/device_stream.h"
#include "gnmr/torch/squared_norm.h"

namespace gnmr::nn {
namespace {

/// The device that all gradients are on, where kernels can read them.
std::optional<c10::Device> device_of(std::span<const at::Tensor> gradients) {
  std::optional<c10::Device> device;
  for (const at::Tensor& gradient : gradients) {
    if (!gradient.defined()) continue;
    if (!gradient.is_cuda() || !gradient.is_non_overlapping_and_dense() || !kernel_type(gradient)) return {};
    if (device && *device != gradient.device()) return {};
    device = gradient.device();
  }
  return device;
}

}  // namespace

struct GradientSquares::OnDevice {
  std::size_t count;
  c10::Device device;
  kernels::UnitNorms norms;
  std::vector<kernels::Slice> slices = {};
};

GradientSquares::GradientSquares() = default;
GradientSquares::GradientSquares(GradientSquares&&) noexcept = default;
GradientSquares& GradientSquares::operator=(GradientSquares&&) noexcept = default;
GradientSquares::~GradientSquares() = default;

std::vector<double> GradientSquares::measure(std::span<const at::Tensor> gradients) {
  const std::optional<c10::Device> device = device_of(gradients);
  if (!device) return squared_norms(gradients);
  const at::Tensor sums =
      at::empty({static_cast<std::int64_t>(gradients.size())}, at::TensorOptions().dtype(at::kDouble).device(*device));
  if (!measure_on_device(gradients, sums.mutable_data_ptr<double>())) return squared_norms(gradients);
  const at::Tensor on_host = sums.cpu();
  const auto* const values = on_host.const_data_ptr<double>();
  return {values, values + gradients.size()};
}

bool GradientSquares::measure_on_device(std::span<const at::Tensor> gradients, double* sums) {
  const std::optional<c10::Device> device = device_of(gradients);
  if (!device || !kernels::available()) return false;
  const c10::DeviceGuard guard(*device);
  if (!on_device_ || on_device_->count != gradients.size() || on_device_->device != *device) {
    on_device_.reset(
        new OnDevice{gradients.size(), *device, kernels::UnitNorms(static_cast<std::uint32_t>(gradients.size()))});
  }
  std::vector<kernels::Slice>& slices = on_device_->slices;
  slices.clear();
  for (std::size_t index = 0; index < gradients.size(); ++index) {
    const at::Tensor& gradient = gradients[index];
    if (!gradient.defined() || gradient.numel() == 0) continue;
    slices.push_back({.data = gradient.const_data_ptr(),
                      .count = static_cast<std::uint64_t>(gradient.numel()),
                      .type = *kernel_type(gradient),
                      .unit = static_cast<std::uint32_t>(index)});
  }
  on_device_->norms.sum_squares(slices, sums, current_stream(*device));
  return true;
}

kernels::UnitNorms& GradientSquares::norms() { return on_device_->norms; }

}  // namespace gnmr::nn
