// SPDX-License-Identifier: Apache-2.0
// The FP8 data of 128 x 128 elements in shared memory, on their way from rows to columns.
//
// Goals: words in, 16 bytes out, and no two lanes in one bank. Non-goals: other sizes.
#pragma once

#include "gnmr/kernels/cast_patch.cuh"

namespace gnmr::kernels {

/// Transposed FP8 data of a tile on their way out: a word has four rows of a column. Sixteen bytes of a column's 128
/// lie where the column's vector says, so that neither writes nor reads meet in a bank.
struct TurnedTile {
  unsigned words[kTile * kTile / 4];

  template <class Element>
  static __device__ unsigned chunk(unsigned column, unsigned sixteen) {
    return column * (kTile / 4) + ((sixteen ^ (column / Element::kPerVector % kLanesPerRow)) << 2);
  }
  template <class Element>
  __device__ void put(unsigned column, unsigned four, unsigned codes) {
    words[chunk<Element>(column, four / 4) + four % 4] = codes;
  }
  template <class Element>
  __device__ uint4 sixteen_rows(unsigned column, unsigned sixteen) const {
    return *reinterpret_cast<const uint4*>(&words[chunk<Element>(column, sixteen)]);
  }
};

/// Four words of four columns each become four words of four rows each.
__device__ __forceinline__ void turn(unsigned (&words)[4]) {
  const unsigned low_01 = __byte_perm(words[0], words[1], 0x5140);
  const unsigned low_23 = __byte_perm(words[2], words[3], 0x5140);
  const unsigned high_01 = __byte_perm(words[0], words[1], 0x7362);
  const unsigned high_23 = __byte_perm(words[2], words[3], 0x7362);
  words[0] = __byte_perm(low_01, low_23, 0x5410);
  words[1] = __byte_perm(low_01, low_23, 0x7632);
  words[2] = __byte_perm(high_01, high_23, 0x5410);
  words[3] = __byte_perm(high_01, high_23, 0x7632);
}

}  // namespace gnmr::kernels
