// SPDX-License-Identifier: Apache-2.0
// A matrix times a few columns on the host: what a patrol is made of.
//
// Goals: one pass over the large matrix at the memory's speed (a library's GEMM takes several times that for so few
// columns); the same bits whatever the number of threads. Anything but float32 in host memory goes to the front end's
// GEMM. Non-goals: devices with kernels of ours (gnmr/kernels/row_errors.h).
#pragma once

#include <cstdint>

#include "gnmr/low/front_end.h"
#include "gnmr/low/matrix.h"

namespace gnmr::low {

/// matrix [m, n] x thin [n, k]. The matrix may be a transposed view.
Matrix thin_product(const FrontEnd& front_end, const Matrix& matrix, const Matrix& thin);

/// 1 and -1 by chance, one bit each: a pure function of the seed.
class RandomSigns {
 public:
  explicit RandomSigns(std::uint64_t seed) : state_(seed) {}

  float next() {
    if (left_ == 0) refill();
    const bool positive = (bits_ & 1U) != 0;
    bits_ >>= 1U;
    --left_;
    return positive ? 1.0f : -1.0f;
  }

 private:
  void refill();

  std::uint64_t state_;
  std::uint64_t bits_ = 0;
  int left_ = 0;
};

}  // namespace gnmr::low
