// SPDX-License-Identifier: Apache-2.0
// The loops of thin_product.h, on plain arrays.
#pragma once

#include <cstdint>

namespace gnmr::low {

/// The most columns of a thin matrix that has loops of its own.
inline constexpr std::int64_t kMaxThinColumns = 4;

/// Rows of float32, each without gaps.
struct Rows {
  const float* values;
  std::int64_t count;
  std::int64_t width;
  std::int64_t stride;

  const float* at(std::int64_t row) const { return values + row * stride; }
};

/// results[row * count + k] = the dot product of a row and vector k; the vectors lie one after the other.
void dot_rows(const Rows& rows, std::int64_t first, std::int64_t last, std::int64_t count, const float* vectors,
              float* results);

/// sums[k * width + column] = the sum of the rows, each times its coefficients[row * count + k].
void add_rows(const Rows& rows, std::int64_t first, std::int64_t last, std::int64_t count, const float* coefficients,
              float* sums);

}  // namespace gnmr::low
