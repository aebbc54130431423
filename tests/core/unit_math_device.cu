// SPDX-License-Identifier: Apache-2.0
// The arithmetic of one unit, compiled for a GPU: it need not run here, but it must be the same header.
#include "gnmr/core/unit_math.h"

__global__ void outcomes(gnmr::unit_math::Rules rules, const gnmr::unit_math::Memory<double>* memories,
                         const gnmr::unit_math::Kept<double>* oldest, const gnmr::unit_math::Sample* samples,
                         double centre, gnmr::unit_math::Outcome* out) {
  const unsigned unit = blockIdx.x * blockDim.x + threadIdx.x;
  out[unit] = gnmr::unit_math::outcome_of(rules, memories[unit], oldest[unit], samples[unit], centre);
}
