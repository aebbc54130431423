// SPDX-License-Identifier: Apache-2.0
// What delayed_scales.h computes, on the host, by gnmr/formats.
//
// Goals: the answer that the kernels are compared with. Non-goals: speed.
#pragma once

#include <span>
#include <vector>

#include "gnmr/kernels/delayed_scales.h"

namespace gnmr::kernels {

/// As `DelayedScales::first_scales`, into the scales that casts take.
void reference_first_scales(std::span<const DelayedTensor> tensors, std::span<const formats::DelayedState> states,
                            std::span<const float> amaxes, std::span<float> scales);

/// As `DelayedScales::observe`; the scales that casts take come with it.
void reference_observe(std::span<const DelayedTensor> tensors, std::span<const float> amaxes,
                       std::span<formats::DelayedState> states, std::span<float> scales);

}  // namespace gnmr::kernels
