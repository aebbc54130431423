// SPDX-License-Identifier: Apache-2.0
// Scales and FP8 data of elements in registers. For .cu files compiled with -fmad=false.
//
// Goals: the bits of gnmr/formats at a few instructions per element. Non-goals: memory.
#pragma once

#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include "gnmr/formats/cast.h"

namespace gnmr::kernels {

using formats::Format;

/// The scale of gnmr/formats for a group with that largest finite magnitude.
template <Format kFormat>
__device__ __forceinline__ float scale_of(unsigned amax_bits) {
  const float amax = __uint_as_float(amax_bits);
  return amax > 0 ? fmaxf(amax / formats::layout_of(kFormat).max, 0x1p-126f) : 1.0f;
}

// A division costs as much as all else. A product with the rounded reciprocal, corrected once by its remainder, is a
// quotient with a relative error below 2^-46 before its last rounding, as long as no remainder falls below float's
// range and no product leaves it. It rounds to another float than the exact one only beside the middle of two floats,
// and to another FP8 number only if one of these floats is the middle m of two: five bits. With 24 bits of scale b,
// 24 of value a, and m as integers, a 2^k is then within 2^-17 of b m +- b / 2^20, and an integer: b has to be within 8
// of a multiple of 2^20. A multiple itself would need 25 bits of a. Scales near one are divided by, as all odd ones
// are.
constexpr float kLeastPlainScale = 0x1p-60f;
constexpr float kMostPlainScale = 0x1p60f;
constexpr float kMostPlainQuotient = 0x1p20f;
constexpr unsigned kScaleSpacing = 1u << 20;
constexpr unsigned kScaleDistance = 16;  // twice what is needed

struct Divisor {
  float scale;
  float reciprocal;

  __device__ static Divisor of(float scale) { return {scale, __frcp_rn(scale)}; }
  __device__ bool is_plain() const {
    const unsigned beside = (__float_as_uint(scale) + kScaleDistance) % kScaleSpacing;
    return scale >= kLeastPlainScale && scale <= kMostPlainScale &&
           (beside == kScaleDistance || beside > 2 * kScaleDistance);
  }
  __device__ bool is_plain_for(unsigned largest_bits) const {
    return is_plain() && __uint_as_float(largest_bits) < scale * kMostPlainQuotient;
  }
  template <bool kPlain>
  __device__ __forceinline__ float quotient(float value) const {
    if constexpr (!kPlain) return value / scale;
    const float product = value * reciprocal;
    // The remainder's sign is that which leaves the sign of a 0.
    return __fmaf_rn(__fmaf_rn(scale, product, -value), -reciprocal, product);
  }
};

/// Counts nothing.
struct NoTally {
  static __device__ bool is_plain_for(unsigned) { return true; }
  template <Format kFormat, bool kPlain>
  __device__ void add(const float (&)[4], const float (&)[4], unsigned, float) {}
};

/// Two FP8 numbers by the hardware's conversion; it loses the sign of a NaN.
template <Format kFormat>
__device__ __forceinline__ unsigned two_codes(float low, float high) {
  return __nv_cvt_float2_to_fp8x2({low, high}, __NV_SATFINITE, kFormat == Format::e4m3 ? __NV_E4M3 : __NV_E5M2);
}

/// The FP8 data of four elements that share a scale, the first in the lowest byte.
template <Format kFormat, bool kPlain, class Tally>
__device__ __forceinline__ unsigned four_codes(const float (&values)[4], const Divisor& divisor, Tally& tally) {
  float quotients[4];
#pragma unroll
  for (unsigned k = 0; k < 4; ++k) quotients[k] = divisor.quotient<kPlain>(values[k]);
  unsigned codes = two_codes<kFormat>(quotients[0], quotients[1]) | two_codes<kFormat>(quotients[2], quotients[3])
                                                                        << 16;
  if constexpr (!kPlain) {
#pragma unroll
    for (unsigned k = 0; k < 4; ++k) {
      if (!isnan(values[k])) continue;
      const unsigned code = formats::layout_of(kFormat).nan_code | __float_as_uint(values[k]) >> 31 << 7;
      codes = (codes & ~(0xffu << 8 * k)) | code << 8 * k;
    }
  }
  tally.template add<kFormat, kPlain>(values, quotients, codes, divisor.scale);
  return codes;
}

}  // namespace gnmr::kernels
