// SPDX-License-Identifier: Apache-2.0
// Which colour of the scale a ratio has: logarithmic, centred at 1. The colours themselves are in web/style.css.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace gnmr::report {

/// Colours from 1/8 to 8; the one in the middle is 1.
inline constexpr std::size_t kHeatColours = 13;

/// The power of 2 at either end of the scale.
inline constexpr double kHeatEnd = 3.0;

/// The colour of a finite ratio above 0.
inline std::size_t heat_colour(float ratio) {
  const double power = std::clamp(std::log2(static_cast<double>(ratio)), -kHeatEnd, kHeatEnd);
  constexpr double kHalf = (kHeatColours - 1) / 2.0;
  return static_cast<std::size_t>(std::lround(kHalf + power / kHeatEnd * kHalf));
}

}  // namespace gnmr::report
