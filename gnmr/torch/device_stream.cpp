// SPDX-License-Identifier: Apache-2.0
#include "gnmr/torch/device_stream.h"

#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace gnmr::nn {

void* current_stream(const c10::Device& device) {
  if (device.is_cpu()) return nullptr;
  // Through torch's own interface of devices: the CPU build has no CUDA headers.
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device).native_handle();
}

std::optional<kernels::ElementType> kernel_type(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return kernels::ElementType::float32;
    case at::kBFloat16:
      return kernels::ElementType::bfloat16;
    case at::kHalf:
      return kernels::ElementType::float16;
    default:
      return {};
  }
}

}  // namespace gnmr::nn
