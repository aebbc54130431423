// SPDX-License-Identifier: Apache-2.0
#include "gnmr/formats/group_scale.h"

#include <algorithm>

#include "gnmr/formats/kernels.h"

namespace gnmr::formats {

namespace {

constexpr float kNvfp4Range = 448.0f * 6.0f;
constexpr std::uint8_t kE4m3Smallest = 0x01;
constexpr std::uint8_t kE4m3Nan = 0x7f;
constexpr std::uint8_t kE8m0Nan = 0xff;
constexpr int kE8m0Bias = 127;

/// Exponent and mantissa of a positive float, denormals as if they were normal.
struct Parts {
  int exponent;
  std::uint32_t mantissa;
};
Parts parts_of(float value) {
  const bool denormal = as_bits(value) < 0x800000u;
  const std::uint32_t bits = as_bits(denormal ? value * 0x1p64f : value);
  return {static_cast<int>(bits >> 23) - 127 - (denormal ? 64 : 0), bits & 0x7fffffu};
}

GroupScale mx_scale(const Layout& layout, float amax, bool round_up) {
  const Parts of_amax = parts_of(amax);
  const Parts of_max = parts_of(layout.max);
  int exponent = of_amax.exponent - of_max.exponent;
  if (round_up && of_amax.mantissa > of_max.mantissa) ++exponent;
  const auto code = static_cast<std::uint8_t>(std::clamp(exponent, -kE8m0Bias, kE8m0Bias) + kE8m0Bias);
  return {from_format<Format::e8m0>(code), code};
}

GroupScale nvfp4_scale(const Layout& layout, float tensor_scale, float amax) {
  const float wanted = amax / layout.max / tensor_scale;
  const OverflowTarget target = overflow_target(Format::e4m3, Overflow::saturate);
  const std::uint32_t rounded = to_format<Format::e4m3, Rounding::nearest_even>(wanted, 0, target).code;
  const std::uint8_t code = std::max(static_cast<std::uint8_t>(rounded), kE4m3Smallest);
  return {from_format<Format::e4m3>(code) * tensor_scale, code};
}

}  // namespace

float float32_scale(Format format, float amax) {
  return amax > 0 ? std::max(amax / layout_of(format).max, kSmallestScale) : 1.0f;
}

float nvfp4_tensor_scale(float tensor_amax) {
  return tensor_amax > 0 ? std::max(tensor_amax / kNvfp4Range, kSmallestTensorScale) : 1.0f;
}

GroupScale group_scale(const ScaleRule& rule, float amax) {
  switch (rule.kind) {
    case ScaleKind::given:
      return {rule.base_scale, 0};
    case ScaleKind::float32:
      return {amax > 0 ? std::max(amax / rule.layout.max, kSmallestScale) : 1.0f, 0};
    case ScaleKind::mx_floor:
    case ScaleKind::mx_round_up:
      if (!(amax > 0)) return {1.0f, kE8m0Bias};
      return mx_scale(rule.layout, amax, rule.kind == ScaleKind::mx_round_up);
    case ScaleKind::nvfp4:
      return nvfp4_scale(rule.layout, rule.base_scale, amax);
  }
  return nan_group_scale(rule.kind);
}

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
  for (std::size_t i = 0; i < count; ++i) codes[i] = std::max(codes[i], kE4m3Smallest);
  kernels.decode[kE4m3](codes, count, scales);
  kernels.multiply(scales, count, {&rule.base_scale, count}, scales);
}

GroupScale nan_group_scale(ScaleKind kind) {
  const float nan = as_float(kNanBits);
  return {nan, kind == ScaleKind::nvfp4 ? kE4m3Nan : kE8m0Nan};
}

}  // namespace gnmr::formats
