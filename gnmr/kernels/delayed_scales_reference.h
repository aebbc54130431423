// SPDX-License-Identifier: Apache-2.0
// What delayed_scales.h computes, on the host, by gnmr/formats.
//
// Goals: the answer that the kernels are compared with. Non-goals: speed.
#pragma once

#include <span>
#include <vector>

#include "gnmr/kernels/delayed_scales.h"

namespace gnmr::kernels {

/// As `DelayedScales::first_scales`, into the scales to quantize with.
void reference_first_scales(std::span<const DelayedTensor> tensors, std::span<const formats::DelayedState> states,
                            std::span<const float> amaxes, std::span<float> scales);

/// As `DelayedScales::observe`; with the scales to quantize with.
void reference_observe(std::span<const DelayedTensor> tensors, std::span<const float> amaxes,
                       std::span<formats::DelayedState> states, std::span<float> scales,
                       const formats::Refresh& refresh = {});

/// As `DelayedScales::leave_out_answered`.
void reference_leave_out_answered(std::span<const DelayedTensor> tensors, std::span<const float> amaxes,
                                  std::span<const formats::DelayedState> states, const formats::Refresh& refresh,
                                  std::span<ErrorTotals> totals);

}  // namespace gnmr::kernels
