// SPDX-License-Identifier: Apache-2.0
// The kernels that run on every machine: two lanes, which SSE2 and NEON have.
#define GNMR_LANES 2
#include "gnmr/core/signal_lanes.h"

namespace gnmr {

extern const SignalKernels kBaselineSignalKernels;
const SignalKernels kBaselineSignalKernels{"baseline", ratios<float>, ratios<double>, changes<float>, changes<double>};

}  // namespace gnmr
