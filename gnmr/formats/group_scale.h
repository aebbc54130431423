// SPDX-License-Identifier: Apache-2.0
// From a group's largest magnitude to its scale; docs/formats.md has the definitions. For formats and kernels.
//
// Goals: one arithmetic for host and device (docs of gnmr/formats/element.h say how such files are compiled).
#pragma once

#include <cstddef>
#include <cstdint>

#include "gnmr/formats/element.h"
#include "gnmr/formats/scaling.h"

namespace gnmr::formats {

/// Scales are at least the smallest normal float, so that dividing by one is neither slow nor infinite.
inline constexpr float kSmallestScale = 0x1p-126f;

/// The same for the tensor's scale of nvfp4, under which stands an E4M3 of at least 2^-9.
inline constexpr float kSmallestTensorScale = 0x1p-117f;

/// A scale and, where it is stored in a small format, its code.
struct GroupScale {
  float scale;
  std::uint8_t code;
};

/// How scales are made: the kind, the format of the elements, and the scale that is given or stands above.
struct ScaleRule {
  ScaleKind kind;
  Layout layout;
  float base_scale;
};

namespace detail {

inline constexpr float kNvfp4Range = 448.0f * 6.0f;
inline constexpr int kE8m0Bias = 127;
inline constexpr std::uint8_t kE4m3Smallest = 0x01;

/// Exponent and mantissa of a positive float, denormals as if they were normal.
struct Parts {
  int exponent;
  std::uint32_t mantissa;
};

GNMR_FORMATS_INLINE Parts parts_of(float value) {
  const bool denormal = as_bits(value) < 0x800000u;
  const std::uint32_t bits = as_bits(denormal ? value * 0x1p64f : value);
  return {static_cast<int>(bits >> 23) - 127 - (denormal ? 64 : 0), bits & 0x7fffffu};
}

GNMR_FORMATS_INLINE float at_least(float value, float least) { return value < least ? least : value; }

GNMR_FORMATS_INLINE GroupScale mx_scale(const Layout& layout, float amax, bool round_up) {
  const Parts of_amax = parts_of(amax);
  const Parts of_max = parts_of(layout.max);
  int exponent = of_amax.exponent - of_max.exponent;
  if (round_up && of_amax.mantissa > of_max.mantissa) ++exponent;
  exponent = exponent < -kE8m0Bias ? -kE8m0Bias : exponent;
  exponent = exponent > kE8m0Bias ? kE8m0Bias : exponent;
  const auto code = static_cast<std::uint8_t>(exponent + kE8m0Bias);
  return {from_format<Format::e8m0>(code), code};
}

GNMR_FORMATS_INLINE GroupScale nvfp4_scale(const Layout& layout, float tensor_scale, float amax) {
  const float wanted = amax / layout.max / tensor_scale;
  const OverflowTarget target = overflow_target(Format::e4m3, Overflow::saturate);
  const std::uint32_t rounded = to_format<Format::e4m3, Rounding::nearest_even>(wanted, 0, target).code;
  const auto code = rounded < kE4m3Smallest ? kE4m3Smallest : static_cast<std::uint8_t>(rounded);
  return {from_format<Format::e4m3>(code) * tensor_scale, code};
}

}  // namespace detail

/// The scale of a tensor for nvfp4, from its largest finite magnitude.
GNMR_FORMATS_INLINE float tensor_scale_of_nvfp4(float amax) {
  return amax > 0 ? detail::at_least(amax / detail::kNvfp4Range, kSmallestTensorScale) : 1.0f;
}

/// The scale of a group with that largest finite magnitude.
GNMR_FORMATS_INLINE GroupScale group_scale(const ScaleRule& rule, float amax) {
  switch (rule.kind) {
    case ScaleKind::given:
      break;
    case ScaleKind::float32:
      return {amax > 0 ? detail::at_least(amax / rule.layout.max, kSmallestScale) : 1.0f, 0};
    case ScaleKind::mx_floor:
    case ScaleKind::mx_round_up:
      if (!(amax > 0)) return {1.0f, detail::kE8m0Bias};
      return detail::mx_scale(rule.layout, amax, rule.kind == ScaleKind::mx_round_up);
    case ScaleKind::nvfp4:
      return detail::nvfp4_scale(rule.layout, rule.base_scale, amax);
  }
  return {rule.base_scale, 0};
}

/// The scales of many groups; where an amax is not finite, what is written means nothing.
void group_scales(const ScaleRule& rule, const std::uint32_t* amax_bits, std::size_t count, float* scales,
                  std::uint8_t* codes);

/// The scale that makes all of a group NaN.
GroupScale nan_group_scale(ScaleKind kind);

}  // namespace gnmr::formats
