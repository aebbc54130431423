// SPDX-License-Identifier: Apache-2.0
// What row_errors.h computes, slowly, in double, on the host: the answer that the kernels are compared with.
//
// Goals: no cleverness. Non-goals: speed, the order of the kernels' sums.
#pragma once

#include <vector>

#include "gnmr/kernels/row_errors.h"

namespace gnmr::kernels {

/// Sums, and with them the sums of magnitudes that bound their rounding.
struct ReferenceSums {
  std::vector<double> sums;
  std::vector<double> magnitudes;
};

/// As `multiply_signs`, of one kind.
ReferenceSums reference_multiply_signs(const RowsView& matrix, std::uint64_t seed, bool is_transposed,
                                       std::uint64_t vectors = kSignVectors);

/// As the functions of those names, on arrays of the host; samples are judged at once.
void reference_add_error(const RowsView& low, const RowsView& high, ErrorTotals& totals);
void reference_add_sampled_rows(const SampledRows& rows, ErrorTotals& totals);
void reference_add_sampled_outputs(const SampledOutputs& outputs, ErrorTotals& totals);

}  // namespace gnmr::kernels
