// SPDX-License-Identifier: Apache-2.0
// Signs for the columns of a matrix, a vector of a row at a time. For .cu files of this layer.
//
// Goals: no memory for signs. Non-goals: signs for rows.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "gnmr/kernels/random_bits.cuh"

namespace gnmr::kernels {

/// Signs for the columns that stand beside a vector of a row, as 1 and -1.
template <class Element, unsigned kVectors>
struct ColumnSigns {
  static_assert(64 % (kVectors * Element::kPerVector) == 0);

  __device__ ColumnSigns(std::uint64_t seed, unsigned column) {
    const unsigned first = kVectors * column;
    const std::uint64_t bits = signs_of_64(seed, first / 64) >> (first % 64);
#pragma unroll
    for (unsigned e = 0; e < Element::kPerVector; ++e) {
#pragma unroll
      for (unsigned k = 0; k < kVectors; ++k) of[e][k] = (bits >> (kVectors * e + k) & 1u) != 0 ? 1.0f : -1.0f;
    }
  }
  float of[Element::kPerVector][kVectors];
};

}  // namespace gnmr::kernels
