// SPDX-License-Identifier: Apache-2.0
// One row of a suite's table: the figures of an arm over its seeds.
//
// Goals: a mean is of seeds, a share of something rare (faults met, trials per fault) of all seeds together.
// Non-goals: which columns are shown (gnmr/lab/summary.cpp).
#pragma once

#include "gnmr/lab/summary.h"

namespace gnmr::lab {

/// The row of an arm, by its place in the comparison.
SummaryRow summary_row(const Comparison& comparison, std::size_t arm);

}  // namespace gnmr::lab
