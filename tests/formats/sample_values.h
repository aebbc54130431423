// SPDX-License-Identifier: Apache-2.0
// Values that find mistakes in a format, and a small generator that is the same everywhere.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "gnmr/formats/element.h"
#include "gnmr/formats/reference.h"

namespace gnmr::formats::testing {

inline constexpr Format kAllFormats[] = {Format::e4m3, Format::e5m2,     Format::e3m2, Format::e2m3, Format::e2m1,
                                         Format::e8m0, Format::bfloat16, Format::int8, Format::int4, Format::int3};
/// Formats of elements that have a sign and fit into a byte.
inline constexpr Format kByteFormats[] = {Format::e4m3, Format::e5m2, Format::e3m2, Format::e2m3,
                                          Format::e2m1, Format::int8, Format::int4, Format::int3};

class Noise {
 public:
  explicit Noise(std::uint64_t seed) : state_(seed * 2 + 1) {}
  std::uint32_t bits() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::uint32_t>(state_ >> 32);
  }
  double uniform() { return bits() * 0x1p-32; }
  float normal() {
    const double radius = std::sqrt(-2 * std::log(1 - uniform()));
    return static_cast<float>(radius * std::cos(6.283185307179586 * uniform()));
  }

 private:
  std::uint64_t state_;
};

/// The format's values, ties, their neighbours, denormals, what is not finite, and random bit patterns.
inline std::vector<float> sample_values(Format format, std::size_t random_count) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> values{0.0f, kInfinity, std::numeric_limits<float>::quiet_NaN(), 1e-45f, 1e-40f, 0x1p-127f};
  const std::uint32_t stride = format == Format::bfloat16 ? 37 : 1;
  const Layout layout = layout_of(format);
  for (std::uint32_t code = 0; code <= layout.max_code; code += stride) {
    const double here = reference::decode(format, code);
    const double next = code == layout.max_code ? here * 1.25 : reference::decode(format, code + 1);
    for (const double point : {here, (here + next) / 2}) {
      const auto value = static_cast<float>(point);
      values.insert(values.end(), {value, std::nextafter(value, 0.0f), std::nextafter(value, kInfinity)});
    }
  }
  Noise noise(7);
  for (std::size_t i = 0; i < random_count; ++i) {
    values.push_back(as_float(noise.bits()));
    values.push_back(static_cast<float>(layout.max * std::exp2(-20 * noise.uniform()) * 1.1));
  }
  const std::size_t positive = values.size();
  for (std::size_t i = 0; i < positive; ++i) values.push_back(-values[i]);
  return values;
}

/// Equal bits, or both NaN.
inline bool same(float a, float b) { return as_bits(a) == as_bits(b) || (std::isnan(a) && std::isnan(b)); }

/// Equal codes, or both NaN.
inline bool same_code(Format format, std::uint32_t a, std::uint32_t b) {
  return a == b || (std::isnan(reference::decode(format, a)) && std::isnan(reference::decode(format, b)));
}

}  // namespace gnmr::formats::testing
