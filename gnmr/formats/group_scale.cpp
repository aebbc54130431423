// SPDX-License-Identifier: Apache-2.0
#include "gnmr/formats/group_scale.h"

#include <algorithm>

#include "gnmr/formats/kernels.h"

namespace gnmr::formats {

namespace {

constexpr std::uint8_t kE4m3Nan = 0x7f;
constexpr std::uint8_t kE8m0Nan = 0xff;

}  // namespace

float float32_scale(Format format, float amax) {
  return amax > 0 ? std::max(amax / layout_of(format).max, kSmallestScale) : 1.0f;
}

float nvfp4_tensor_scale(float tensor_amax) { return tensor_scale_of_nvfp4(tensor_amax); }

void group_scales(const ScaleRule& rule, const std::uint32_t* amax_bits, std::size_t count, float* scales,
                  std::uint8_t* codes) {
  if (rule.kind != ScaleKind::nvfp4) {
    for (std::size_t i = 0; i < count; ++i) {
      const GroupScale made = group_scale(rule, as_float(amax_bits[i]));
      scales[i] = made.scale;
      codes[i] = made.code;
    }
    return;
  }
  // The same as `nvfp4_scale`, in lanes: its groups are many and small.
  const Kernels& kernels = best_kernels();
  constexpr auto kE4m3 = static_cast<std::size_t>(Format::e4m3);
  constexpr auto kNearest = static_cast<std::size_t>(Rounding::nearest_even);
  for (std::size_t i = 0; i < count; ++i) scales[i] = as_float(amax_bits[i]) / rule.layout.max / rule.base_scale;
  const RoundTask task{overflow_target(Format::e4m3, Overflow::saturate), {}, 0};
  kernels.encode[kE4m3][kNearest](scales, count, task, codes);
  for (std::size_t i = 0; i < count; ++i) codes[i] = std::max(codes[i], detail::kE4m3Smallest);
  kernels.decode[kE4m3](codes, count, scales);
  kernels.multiply(scales, count, {&rule.base_scale, count}, scales);
}

GroupScale nan_group_scale(ScaleKind kind) {
  const float nan = as_float(kNanBits);
  return {nan, kind == ScaleKind::nvfp4 ? kE4m3Nan : kE8m0Nan};
}

}  // namespace gnmr::formats
