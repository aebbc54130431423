// SPDX-License-Identifier: Apache-2.0
// Random signs, 64 at a time. For .cu files of this layer.
//
// Goals: a pure function of seed and place, the same as on the host (`is_plus`). Non-goals: other distributions.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace gnmr::kernels {

/// 64 signs, one bit each, 1 for plus: output `index` of a splitmix64 with that seed.
__device__ __forceinline__ std::uint64_t signs_of_64(std::uint64_t seed, std::uint64_t index) {
  std::uint64_t bits = seed + (index + 1) * 0x9e3779b97f4a7c15ull;
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9ull;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebull;
  return bits ^ (bits >> 31);
}

}  // namespace gnmr::kernels
