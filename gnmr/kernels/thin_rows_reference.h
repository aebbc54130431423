// SPDX-License-Identifier: Apache-2.0
// What thin_rows.h computes, slowly, in double, on the host: the answer that the kernels are compared with.
//
// Goals: no cleverness. Non-goals: speed, the order of the kernels' sums.
#pragma once

#include <vector>

#include "gnmr/kernels/thin_rows.h"

namespace gnmr::kernels {

/// Sums of groups, and with them the sums of magnitudes that bound their rounding.
struct ReferenceSums {
  std::vector<double> sums;
  std::vector<double> magnitudes;
};

/// As `group_rows`; the squared norm comes with it where wanted.
ReferenceSums reference_group_rows(const ThinMatrix& matrix, std::uint64_t seed, double* squared_norm);

/// As `multiply_thin`.
ReferenceSums reference_multiply(const ThinMatrix& matrix, const float* vectors, std::uint32_t count);

/// As `multiply_transposed`.
ReferenceSums reference_multiply_transposed(const ThinMatrix& matrix, const float* vectors, std::uint32_t count);

}  // namespace gnmr::kernels
