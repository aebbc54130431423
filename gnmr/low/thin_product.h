// SPDX-License-Identifier: Apache-2.0
// A matrix times a few columns, and sums of rows, on the host: what a patrol is made of.
//
// Goals: one pass over the large matrix at the memory's speed (a library's GEMM takes several times that for so few
// columns); the same bits whatever the number of threads. Anything but float32 in host memory goes to the front end's
// GEMM. Non-goals: devices with kernels of ours (gnmr/kernels/thin_rows.h).
#pragma once

#include <cstdint>

#include "gnmr/low/front_end.h"
#include "gnmr/low/matrix.h"

namespace gnmr::low {

/// The most groups that `grouped_rows` makes.
inline constexpr std::int64_t kRowGroups = 64;

/// matrix [m, n] x thin [n, k]. The matrix may be a transposed view.
Matrix thin_product(const FrontEnd& front_end, const Matrix& matrix, const Matrix& thin);

/// Rows of a matrix added up in groups, each row with a random sign: the expected square of a group is the sum of the
/// squares of its rows, so no row is left out.
struct GroupedRows {
  Matrix sums;              // [groups, columns]
  double squared_norm = 0;  // of the whole matrix
};

/// A pure function of the matrix and the seed; matrices with as many rows have the same groups and signs.
GroupedRows grouped_rows(const FrontEnd& front_end, const Matrix& matrix, std::uint64_t seed);

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
