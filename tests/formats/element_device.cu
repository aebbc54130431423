// SPDX-License-Identifier: Apache-2.0
// The arithmetic of one element, compiled for a GPU: it need not run here, but it must be the same header.
#include "gnmr/formats/element.h"

using namespace gnmr::formats;

template <Format kFormat, Rounding kRounding>
__global__ void cast(const float* values, std::uint64_t seed, Overflow overflow, std::uint16_t* codes, float* restored,
                     unsigned* overflowed) {
  const unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
  const std::uint32_t random = random_bits(random_key(seed, 0), index);
  const Element element = to_format<kFormat, kRounding>(values[index], random, overflow_target(kFormat, overflow));
  codes[index] = static_cast<std::uint16_t>(element.code);
  restored[index] = from_format<kFormat>(element.code);
  if (element.overflowed) atomicAdd(overflowed, 1u);
}

#define GNMR_CAST(FORMAT)                                                                                      \
  template __global__ void cast<Format::FORMAT, Rounding::nearest_even>(const float*, std::uint64_t, Overflow, \
                                                                        std::uint16_t*, float*, unsigned*);    \
  template __global__ void cast<Format::FORMAT, Rounding::stochastic>(const float*, std::uint64_t, Overflow,   \
                                                                      std::uint16_t*, float*, unsigned*);
GNMR_CAST(e4m3)
GNMR_CAST(e5m2)
GNMR_CAST(e3m2)
GNMR_CAST(e2m3)
GNMR_CAST(e2m1)
GNMR_CAST(e8m0)
GNMR_CAST(bfloat16)
GNMR_CAST(int8)
GNMR_CAST(int4)
GNMR_CAST(int3)
