// SPDX-License-Identifier: Apache-2.0
// A few lanes of doubles: loads, stores, conversions and the operations that a GNU vector type does not have.
//
// GNMR_LANES is 4 with AVX2 and 2 otherwise. Intrinsics where the instruction set is known, plain C++ elsewhere; both
// give the same bits. Included by the lane code only (signal_lanes.h).
#pragma once

#include <cstddef>
#include <cstdint>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "gnmr/core/unit_math.h"

namespace gnmr {
namespace {

constexpr std::size_t kLanes = GNMR_LANES;
constexpr unsigned kAllLaneBits = (1u << kLanes) - 1;

typedef double Reals __attribute__((vector_size(8 * GNMR_LANES)));
using Mask = decltype(Reals{} < Reals{});

GNMR_UNIT_MATH Reals load(const double* from) {
  Reals lanes;
  __builtin_memcpy(&lanes, from, sizeof lanes);
  return lanes;
}
GNMR_UNIT_MATH void store(double* to, Reals lanes) { __builtin_memcpy(to, &lanes, sizeof lanes); }
GNMR_UNIT_MATH Reals load_norms(const double* from) { return load(from); }
GNMR_UNIT_MATH Mask all_lanes() { return Mask{} - 1; }

#if defined(__AVX2__) && GNMR_LANES == 4

GNMR_UNIT_MATH Reals load_norms(const float* from) { return _mm256_cvtps_pd(_mm_loadu_ps(from)); }
GNMR_UNIT_MATH Mask load_sampled(const std::uint8_t* from) {
  int bytes;
  __builtin_memcpy(&bytes, from, sizeof bytes);
  return reinterpret_cast<Mask>(_mm256_cvtepu8_epi64(_mm_cvtsi32_si128(bytes))) != 0;
}
GNMR_UNIT_MATH unsigned bits_of(Mask mask) {
  return static_cast<unsigned>(_mm256_movemask_pd(reinterpret_cast<__m256d>(mask)));
}
/// Cuts off what stands behind the point; between 0 and 2^31.
GNMR_UNIT_MATH Reals whole_part(Reals value) { return _mm256_cvtepi32_pd(_mm256_cvttpd_epi32(value)); }

#elif defined(__SSE2__) && GNMR_LANES == 2

GNMR_UNIT_MATH Reals load_norms(const float* from) { return Reals{from[0], from[1]}; }
GNMR_UNIT_MATH Mask load_sampled(const std::uint8_t* from) {
  return Mask{-static_cast<long>(from[0] != 0), -static_cast<long>(from[1] != 0)};
}
GNMR_UNIT_MATH unsigned bits_of(Mask mask) {
  return static_cast<unsigned>(_mm_movemask_pd(reinterpret_cast<__m128d>(mask)));
}
/// Cuts off what stands behind the point; between 0 and 2^31.
GNMR_UNIT_MATH Reals whole_part(Reals value) { return _mm_cvtepi32_pd(_mm_cvttpd_epi32(value)); }

#else

GNMR_UNIT_MATH Reals load_norms(const float* from) {
  Reals lanes;
  for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] = from[lane];
  return lanes;
}
GNMR_UNIT_MATH Mask load_sampled(const std::uint8_t* from) {
  Mask lanes;
  for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] = from[lane] != 0 ? -1 : 0;
  return lanes;
}
GNMR_UNIT_MATH unsigned bits_of(Mask mask) {
  unsigned bits = 0;
  for (std::size_t lane = 0; lane < kLanes; ++lane) bits |= mask[lane] != 0 ? 1u << lane : 0u;
  return bits;
}
/// Cuts off what stands behind the point; between 0 and 2^31, other lanes may become anything.
GNMR_UNIT_MATH Reals whole_part(Reals value) {
  // Rounded to a whole number by the size of the sum, then one less where that was upward.
  const Reals rounded = (value + 0x1p52) - 0x1p52;
  return rounded > value ? rounded - 1.0 : rounded;
}

#endif

}  // namespace

namespace unit_math {

#if defined(__AVX2__) && GNMR_LANES == 4
template <>
GNMR_UNIT_MATH Reals min_of<Reals>(Reals a, Reals b) {
  return _mm256_min_pd(b, a);  // b < a ? b : a
}
template <>
GNMR_UNIT_MATH Reals max_of<Reals>(Reals a, Reals b) {
  return _mm256_max_pd(b, a);  // b > a ? b : a
}
template <>
GNMR_UNIT_MATH Reals abs_of<Reals>(Reals value) {
  return _mm256_andnot_pd(_mm256_set1_pd(-0.0), value);
}
#elif defined(__SSE2__) && GNMR_LANES == 2
template <>
GNMR_UNIT_MATH Reals min_of<Reals>(Reals a, Reals b) {
  return _mm_min_pd(b, a);
}
template <>
GNMR_UNIT_MATH Reals max_of<Reals>(Reals a, Reals b) {
  return _mm_max_pd(b, a);
}
template <>
GNMR_UNIT_MATH Reals abs_of<Reals>(Reals value) {
  return _mm_andnot_pd(_mm_set1_pd(-0.0), value);
}
#endif

}  // namespace unit_math
}  // namespace gnmr
