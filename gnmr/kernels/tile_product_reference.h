// SPDX-License-Identifier: Apache-2.0
// What tile_product.h computes, slowly, in double, on the host: the answer that the kernel is compared with.
//
// Goals: no cleverness. Non-goals: speed, the rounding of tensor cores.
#pragma once

#include <vector>

#include "gnmr/kernels/tile_product.h"

namespace gnmr::kernels {

/// A GEMM, and with it the sums of magnitudes that bound its rounding.
struct ReferenceProduct {
  std::vector<double> sums;
  std::vector<double> magnitudes;
};

/// As `multiply_tiles`, with all pointers in host memory and `product` unused.
ReferenceProduct reference_tile_product(const TileProductTask& task);

}  // namespace gnmr::kernels
