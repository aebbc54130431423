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

}  // namespace gnmr::nn
