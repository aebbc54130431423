// SPDX-License-Identifier: Apache-2.0
// What compare.h computes, slowly, in double, on the host: the answer that the kernels are compared with.
//
// Goals: no cleverness. Non-goals: speed, the order of the kernels' sums.
#pragma once

#include <vector>

#include "gnmr/kernels/compare.h"

namespace gnmr::kernels {

/// As `add_error`, on arrays of the host.
void reference_add_error(const ResultView& low, const ResultView& high, std::uint64_t count, ErrorTotals& totals);

/// As `add_square`.
void reference_add_square(const ResultView& matrix, std::uint64_t count, double& sum);

/// As `add_projections`.
void reference_add_projections(double size, const float* low, const float* high, std::uint64_t count,
                               std::uint32_t vectors, ErrorTotals& totals);

/// As `random_signs`.
std::vector<float> reference_signs(std::uint64_t rows, std::uint64_t columns, std::uint64_t seed, SignLayout layout);

}  // namespace gnmr::kernels
