// SPDX-License-Identifier: Apache-2.0
#include "gnmr/kernels/delayed_scales_reference.h"

#include "gnmr/formats/scaling.h"

namespace gnmr::kernels {

void reference_first_scales(std::span<const DelayedTensor> tensors, std::span<const formats::DelayedState> states,
                            std::span<const float> amaxes, std::span<float> scales) {
  for (std::size_t tensor = 0; tensor < tensors.size(); ++tensor) {
    const float amax = amaxes[tensors[tensor].amax];
    if (states[tensor].observations > 0 || amax < 0) continue;
    scales[tensor] = formats::float32_scale(tensors[tensor].rule.format, amax);
  }
}

void reference_observe(std::span<const DelayedTensor> tensors, std::span<const float> amaxes,
                       std::span<formats::DelayedState> states, std::span<float> scales,
                       const formats::Refresh& refresh) {
  for (std::size_t tensor = 0; tensor < tensors.size(); ++tensor) {
    const float amax = amaxes[tensors[tensor].amax];
    if (amax < 0) continue;
    formats::observe_amax(tensors[tensor].rule, amax, states[tensor], refresh);
    scales[tensor] = states[tensor].scale;
  }
}

void reference_leave_out_answered(std::span<const DelayedTensor> tensors, std::span<const float> amaxes,
                                  std::span<const formats::DelayedState> states, const formats::Refresh& refresh,
                                  std::span<ErrorTotals> totals) {
  for (std::size_t tensor = 0; tensor < tensors.size(); ++tensor) {
    const bool is_answered =
        formats::renewal_answers(tensors[tensor].rule, amaxes[tensors[tensor].amax], states[tensor], refresh);
    if (is_answered) totals[tensors[tensor].totals] = {};
  }
}

}  // namespace gnmr::kernels
