// SPDX-License-Identifier: Apache-2.0
// The types of gradient and parameter elements, and how the host reads and writes one.
//
// Goals: what tables and references need. Non-goals: speed; other formats (gnmr/formats has those).
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace gnmr::kernels {

/// How an element is stored.
enum class ElementType : std::uint8_t { float32 = 0, bfloat16 = 1, float16 = 2 };

/// Bytes of one element.
constexpr std::size_t bytes_of(ElementType type) { return type == ElementType::float32 ? 4 : 2; }

/// The value of an IEEE half.
inline double value_of_half(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int mantissa = bits & 1023;
  double magnitude = std::ldexp(mantissa, -24);
  if (exponent == 31) {
    magnitude = mantissa == 0 ? HUGE_VAL : NAN;
  } else if (exponent > 0) {
    magnitude = std::ldexp(1024 + mantissa, exponent - 25);
  }
  return (bits >> 15) != 0 ? -magnitude : magnitude;
}

/// The bfloat16 nearest to a float, ties to even; a NaN stays one.
inline std::uint16_t bfloat16_of(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>((bits >> 16) | 64);
  return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

/// Element `index` of an array in host memory.
inline double load_element(const void* data, std::size_t index, ElementType type) {
  const auto* const bytes = static_cast<const std::byte*>(data) + index * bytes_of(type);
  if (type == ElementType::float32) {
    float value;
    std::memcpy(&value, bytes, sizeof value);
    return static_cast<double>(value);
  }
  std::uint16_t bits;
  std::memcpy(&bits, bytes, sizeof bits);
  if (type == ElementType::float16) return value_of_half(bits);
  return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16));
}

/// Rounds a value to float and then, where asked, to bfloat16, as the kernels do. There is no writing of halves.
inline void store_element(void* data, std::size_t index, ElementType type, double value) {
  auto* const bytes = static_cast<std::byte*>(data) + index * bytes_of(type);
  const auto rounded = static_cast<float>(value);
  if (type == ElementType::float32) {
    std::memcpy(bytes, &rounded, sizeof rounded);
  } else {
    const std::uint16_t bits = bfloat16_of(rounded);
    std::memcpy(bytes, &bits, sizeof bits);
  }
}

}  // namespace gnmr::kernels
