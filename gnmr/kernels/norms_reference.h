// SPDX-License-Identifier: Apache-2.0
// What norms.h computes, slowly, on the host: the answer that the kernels are compared with.
//
// Goals: no cleverness. Non-goals: speed, the order of the kernels' sums.
#pragma once

#include <span>
#include <vector>

#include "gnmr/kernels/norms.h"

namespace gnmr::kernels {

/// The sums of squares; the slices lie in host memory.
std::vector<double> reference_sums(std::span<const Slice> slices, std::uint32_t units);

/// The gate that these sums give.
Gate reference_gate(std::span<const double> sums, double max_norm);

}  // namespace gnmr::kernels
