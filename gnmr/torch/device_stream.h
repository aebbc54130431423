// SPDX-License-Identifier: Apache-2.0
// The stream that torch works on, as kernels take it (gnmr/kernels).
#pragma once

#include <c10/core/Device.h>

namespace gnmr::nn {

/// The stream on which torch's operators on a device run in this thread now; null on the CPU.
void* current_stream(const c10::Device& device);

}  // namespace gnmr::nn
