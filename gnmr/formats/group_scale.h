// SPDX-License-Identifier: Apache-2.0
// From a group's largest magnitude to its scale. Private to the layer; docs/formats.md has the definitions.
#pragma once

#include <cstddef>
#include <cstdint>

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

/// The scale of a group with that largest finite magnitude.
GroupScale group_scale(const ScaleRule& rule, float amax);

/// The scales of many groups; where an amax is not finite, what is written means nothing.
void group_scales(const ScaleRule& rule, const std::uint32_t* amax_bits, std::size_t count, float* scales,
                  std::uint8_t* codes);

/// The scale that makes all of a group NaN.
GroupScale nan_group_scale(ScaleKind kind);

}  // namespace gnmr::formats
