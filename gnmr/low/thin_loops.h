// SPDX-License-Identifier: Apache-2.0
// The loops of thin_product.h, on plain arrays.
#pragma once

#include <cstdint>

#include "gnmr/kernels/row_errors.h"

namespace gnmr::low {

/// The columns of a thin matrix that has loops of its own: a patrol's.
inline constexpr auto kThinColumns = static_cast<std::int64_t>(kernels::kSignVectors);

/// Rows of float32, each without gaps.
struct Rows {
  const float* values;
  std::int64_t count;
  std::int64_t width;
  std::int64_t stride;

  const float* at(std::int64_t row) const { return values + row * stride; }
};

/// results[row * kThinColumns + k] = the dot product of a row and vector k; the vectors lie one after the other.
void dot_rows(const Rows& rows, std::int64_t first, std::int64_t last, const float* vectors, float* results);

/// sums[k * width + column] = the sum of the rows, each times its coefficients[row * kThinColumns + k].
void add_rows(const Rows& rows, std::int64_t first, std::int64_t last, const float* coefficients, float* sums);

}  // namespace gnmr::low
