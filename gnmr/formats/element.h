// SPDX-License-Identifier: Apache-2.0
// One number in one format: encode, decode and round, without branches. The tables are in docs/formats.md.
//
// Goals: the only place where a value is rounded to a format. g++, clang and nvcc compile it, and loops over it become
// lanes; every operation is exact or rounded by itself, so files that include this are compiled with
// -ffp-contract=off (nvcc: -fmad=false), never with fast-math, and run with denormals on.
// Non-goals: scales, arrays, names.
//
// Codes of formats with a sign, from the high bit: sign, exponent, mantissa. Codes of integers are two's complement in
// the format's bits. Nothing here calls a function that is not inlined: it is compiled for several instruction sets.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define GNMR_FORMATS_INLINE __host__ __device__ __forceinline__
#else
#define GNMR_FORMATS_INLINE inline __attribute__((always_inline))
#endif

namespace gnmr::formats {

/// The number formats.
enum class Format : std::uint8_t { e4m3, e5m2, e3m2, e2m3, e2m1, e8m0, bfloat16, int8, int4, int3 };
inline constexpr int kFormatCount = 10;

/// Which neighbour a value goes to: the nearer (of equals the even one), or either, by chance, so that the mean is
/// kept.
enum class Rounding : std::uint8_t { nearest_even, stochastic };
inline constexpr int kRoundingCount = 2;

/// What a value becomes that rounds beyond the largest: the largest, or infinity or NaN as far as the format has them.
enum class Overflow : std::uint8_t { saturate, non_finite };

/// What a format can hold; `mantissa_bits` and the exponents of an integer describe steps of 1.
struct Layout {
  int code_bits;
  int mantissa_bits;
  int min_exponent;  // of the smallest normal number
  int max_exponent;
  float max;
  std::uint32_t max_code;
  std::uint32_t infinity_code;  // 0: there is none
  std::uint32_t nan_code;       // 0: there is none
  bool is_integer;

  GNMR_FORMATS_INLINE constexpr bool has_nan() const { return nan_code != 0; }
  GNMR_FORMATS_INLINE constexpr bool has_infinity() const { return infinity_code != 0; }
};

/// The layout of a format.
GNMR_FORMATS_INLINE constexpr Layout layout_of(Format format) {
  switch (format) {
    case Format::e4m3:
      return {8, 3, -6, 8, 448.0f, 0x7e, 0, 0x7f, false};
    case Format::e5m2:
      return {8, 2, -14, 15, 57344.0f, 0x7b, 0x7c, 0x7e, false};
    case Format::e3m2:
      return {6, 2, -2, 4, 28.0f, 0x1f, 0, 0, false};
    case Format::e2m3:
      return {6, 3, 0, 2, 7.5f, 0x1f, 0, 0, false};
    case Format::e2m1:
      return {4, 1, 0, 2, 6.0f, 0x7, 0, 0, false};
    case Format::e8m0:
      return {8, 0, -127, 127, 0x1p127f, 0xfe, 0, 0xff, false};
    case Format::bfloat16:
      return {16, 7, -126, 127, 0x1.fep127f, 0x7f7f, 0x7f80, 0x7fc0, false};
    case Format::int8:
      return {8, 7, 7, 7, 127.0f, 127, 0, 0, true};
    case Format::int4:
      return {4, 3, 3, 3, 7.0f, 7, 0, 0, true};
    case Format::int3:
      return {3, 2, 2, 2, 3.0f, 3, 0, 0, true};
  }
  return {};
}

GNMR_FORMATS_INLINE std::uint32_t as_bits(float value) { return __builtin_bit_cast(std::uint32_t, value); }
GNMR_FORMATS_INLINE float as_float(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }

inline constexpr std::uint32_t kSignBit = 0x80000000u;
inline constexpr std::uint32_t kInfinityBits = 0x7f800000u;
inline constexpr std::uint32_t kNanBits = 0x7fc00000u;

/// The magnitude that takes the place of an overflow, as a value and as a code.
struct OverflowTarget {
  float value;
  std::uint32_t code;
};

/// The target of a format; formats with neither infinity nor NaN always saturate.
GNMR_FORMATS_INLINE OverflowTarget overflow_target(Format format, Overflow overflow) {
  const Layout layout = layout_of(format);
  if (overflow == Overflow::non_finite && layout.has_infinity()) return {as_float(kInfinityBits), layout.infinity_code};
  if (overflow == Overflow::non_finite && layout.has_nan()) return {as_float(kNanBits), layout.nan_code};
  return {layout.max, layout.max_code};
}

/// What the random bits of 2^32 consecutive elements depend on.
struct RandomKey {
  std::uint32_t before;
  std::uint32_t between;
};

/// The key of a seed for elements whose index has this upper half.
GNMR_FORMATS_INLINE RandomKey random_key(std::uint64_t seed, std::uint32_t index_high) {
  std::uint64_t mixed = (seed ^ 0x6a09e667f3bcc909u) * 0x9e3779b97f4a7c15u;
  mixed ^= mixed >> 32;
  mixed = (mixed + index_high) * 0xd1342543de82ef95u;
  mixed ^= mixed >> 29;
  mixed *= 0xbf58476d1ce4e5b9u;
  mixed ^= mixed >> 32;
  return {static_cast<std::uint32_t>(mixed), static_cast<std::uint32_t>(mixed >> 32)};
}

/// 32 random bits of one element: a function of the key and the lower half of the index, and of nothing else.
GNMR_FORMATS_INLINE std::uint32_t random_bits(RandomKey key, std::uint32_t index_low) {
  std::uint32_t mixed = index_low * 0x9e3779b1u + key.before;
  mixed ^= mixed >> 16;
  mixed *= 0x85ebca6bu;
  mixed ^= mixed >> 13;
  mixed += key.between;
  mixed *= 0xc2b2ae35u;
  mixed ^= mixed >> 16;
  return mixed;
}

/// A magnitude on the format's grid, continued beyond its largest value; the code means nothing there.
struct Magnitude {
  float value;
  std::uint32_t code;
};

namespace detail {

/// Formats of a few exponents: the step of the grid at a magnitude is a power of two, at least that of denormals.
template <Format kFormat, Rounding kRounding>
GNMR_FORMATS_INLINE Magnitude round_on_grid(std::uint32_t magnitude_bits, std::uint32_t random) {
  constexpr Layout kLayout = layout_of(kFormat);
  constexpr std::uint32_t kMantissa = kLayout.mantissa_bits;
  constexpr std::uint32_t kLowestBits = static_cast<std::uint32_t>(127 + kLayout.min_exponent) << 23;
  constexpr std::uint32_t kHighestBits = static_cast<std::uint32_t>(127 + kLayout.max_exponent) << 23;
  const float magnitude = as_float(magnitude_bits);
  const float lowest = as_float(kLowestBits);
  const float highest = as_float(kHighestBits);
  float power = as_float(magnitude_bits & kInfinityBits);
  power = power < lowest ? lowest : power;
  power = power > highest ? highest : power;
  const std::uint32_t binade = (as_bits(power) - kLowestBits) >> (23 - kMantissa);
  if constexpr (kRounding == Rounding::nearest_even) {
    // Where the last place of a float is worth one step, the addition itself rounds, ties to even.
    const float shift = as_float(as_bits(power) + ((23 - kMantissa) << 23));
    const float sum = magnitude + shift;
    return {sum - shift, binade + (as_bits(sum) - as_bits(shift))};
  } else {
    const float inverse_step = as_float(((254 + kMantissa) << 23) - as_bits(power));
    const float step = as_float(as_bits(power) - (kMantissa << 23));
    constexpr float kTop = static_cast<float>(2u << kMantissa);  // the first point beyond the largest binade
    const float scaled = magnitude * inverse_step;
    const float steps = scaled < kTop ? scaled : kTop;  // NaN too: it must not reach the conversion
    const std::int32_t whole = static_cast<std::int32_t>(steps);
    const float rest = steps - static_cast<float>(whole);
    const float threshold = static_cast<float>(static_cast<std::int32_t>(random >> 8)) * 0x1p-24f;
    const std::int32_t rounded = whole + (threshold < rest ? 1 : 0);
    return {static_cast<float>(rounded) * step, binade + static_cast<std::uint32_t>(rounded)};
  }
}

/// bfloat16 is the upper half of a float: its rounding is a carry.
template <Rounding kRounding>
GNMR_FORMATS_INLINE Magnitude round_to_bfloat16(std::uint32_t magnitude_bits, std::uint32_t random) {
  const std::uint32_t carry =
      kRounding == Rounding::nearest_even ? 0x7fffu + ((magnitude_bits >> 16) & 1u) : 0xffffu - (random >> 16);
  const std::uint32_t code = (magnitude_bits + carry) >> 16;
  return {as_float(code << 16), code};
}

/// E8M0 is a float's exponent. Ties go up, and so does everything between 2^-127 and 2^-126, as in ml_dtypes.
template <Rounding kRounding>
GNMR_FORMATS_INLINE Magnitude round_to_e8m0(std::uint32_t magnitude_bits, std::uint32_t random) {
  const std::uint32_t denormal = magnitude_bits < 0x800000u ? 1u : 0u;
  std::uint32_t code = 0;
  if constexpr (kRounding == Rounding::nearest_even) {
    code = (magnitude_bits + 0x400000u - denormal) >> 23;
  } else {
    const std::uint32_t above = magnitude_bits < 0x400000u ? 0u : (magnitude_bits - 0x400000u) * 2u;
    const std::uint32_t linear = denormal != 0 ? above : magnitude_bits;
    code = (linear + 0x7fffffu - (random >> 9)) >> 23;
  }
  return {as_float(code == 0 ? 0x400000u : code << 23), code};
}

}  // namespace detail

/// One value in a format.
struct Element {
  float value;         // what the code stands for; a NaN stays NaN even where the format has none
  std::uint32_t code;  // a NaN becomes 0 where the format has none
  bool overflowed;     // it rounded beyond the largest value and was replaced
};

/// Rounds one value to a format; `random` counts only in stochastic rounding.
template <Format kFormat, Rounding kRounding>
GNMR_FORMATS_INLINE Element to_format(float input, std::uint32_t random, OverflowTarget target) {
  constexpr Layout kLayout = layout_of(kFormat);
  const std::uint32_t bits = as_bits(input);
  const std::uint32_t magnitude_bits = bits & ~kSignBit;
  std::uint32_t sign = bits & kSignBit;
  bool is_nan = magnitude_bits > kInfinityBits;
  Magnitude rounded{};
  if constexpr (kFormat == Format::bfloat16) {
    rounded = detail::round_to_bfloat16<kRounding>(magnitude_bits, random);
  } else if constexpr (kFormat == Format::e8m0) {
    is_nan = bits - 1u >= kInfinityBits;  // it has neither zero nor negative numbers
    sign = 0;
    rounded = detail::round_to_e8m0<kRounding>(magnitude_bits, random);
  } else {
    rounded = detail::round_on_grid<kFormat, kRounding>(magnitude_bits, random);
  }
  const bool overflowed = (rounded.value > kLayout.max) & !is_nan;
  float value = overflowed ? target.value : rounded.value;
  std::uint32_t code = overflowed ? target.code : rounded.code;
  value = is_nan ? as_float(kNanBits) : value;
  code = is_nan ? kLayout.nan_code : code;
  value = as_float(as_bits(value) | sign);
  if constexpr (kLayout.is_integer) {
    value += 0.0f;  // no integer is -0
    const std::uint32_t negative = 0u - (sign >> 31);
    code = ((code ^ negative) - negative) & ((1u << kLayout.code_bits) - 1u);
  } else if constexpr (kFormat != Format::e8m0) {
    // In formats without NaN its place is taken by +0.
    const std::uint32_t code_sign = !kLayout.has_nan() && is_nan ? 0u : sign;
    code |= code_sign >> (32 - kLayout.code_bits);
  }
  return {value, code, overflowed};
}

/// The value of a code; bits above the format's own are ignored.
template <Format kFormat>
GNMR_FORMATS_INLINE float from_format(std::uint32_t code) {
  constexpr Layout kLayout = layout_of(kFormat);
  if constexpr (kFormat == Format::bfloat16) {
    return as_float(code << 16);
  } else if constexpr (kFormat == Format::e8m0) {
    const std::uint32_t exponent = code & 0xffu;
    std::uint32_t bits = exponent << 23;
    bits = exponent == 0 ? 0x400000u : bits;
    bits = exponent == 0xffu ? kNanBits : bits;
    return as_float(bits);
  } else if constexpr (kLayout.is_integer) {
    constexpr int kUnused = 32 - kLayout.code_bits;
    return static_cast<float>(static_cast<std::int32_t>(code << kUnused) >> kUnused);
  } else {
    constexpr int kMantissa = kLayout.mantissa_bits;
    const std::uint32_t magnitude = code & ((1u << (kLayout.code_bits - 1)) - 1u);
    const std::uint32_t sign = ((code >> (kLayout.code_bits - 1)) & 1u) << 31;
    constexpr std::uint32_t kStepBits = static_cast<std::uint32_t>(127 + kLayout.min_exponent - kMantissa) << 23;
    const float denormal = static_cast<float>(static_cast<std::int32_t>(magnitude)) * as_float(kStepBits);
    constexpr std::uint32_t kOffset = static_cast<std::uint32_t>(126 + kLayout.min_exponent) << 23;
    std::uint32_t bits = (magnitude << (23 - kMantissa)) + kOffset;
    bits = magnitude < (1u << kMantissa) ? as_bits(denormal) : bits;
    if constexpr (kLayout.has_infinity()) {
      bits = magnitude == kLayout.infinity_code ? kInfinityBits : bits;
      bits = magnitude > kLayout.infinity_code ? kNanBits : bits;
    } else if constexpr (kLayout.has_nan()) {
      bits = magnitude == kLayout.nan_code ? kNanBits : bits;
    }
    return as_float(bits | sign);
  }
}

}  // namespace gnmr::formats
