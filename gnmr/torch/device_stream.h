// SPDX-License-Identifier: Apache-2.0
// What kernels (gnmr/kernels) take of torch: the stream that it works on, and types of elements.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <optional>

#include "gnmr/kernels/element.h"

namespace gnmr::nn {

/// The stream on which torch's operators on a device run in this thread now; null on the CPU.
void* current_stream(const c10::Device& device);

/// The type of a tensor's elements; none where no kernel reads such.
std::optional<kernels::ElementType> kernel_type(const at::Tensor& tensor);

}  // namespace gnmr::nn
