// SPDX-License-Identifier: Apache-2.0
// What adamw.h computes, slowly, on the host: the answer that the kernel is compared with.
//
// Goals: double arithmetic, rounded once to what is stored. Non-goals: speed.
#pragma once

#include <span>

#include "gnmr/kernels/adamw.h"

namespace gnmr::kernels {

/// One update; all pointers are to host memory.
void reference_adamw(std::span<const AdamWTensor> tensors, const AdamWSettings& settings, const Gate& gate);

}  // namespace gnmr::kernels
