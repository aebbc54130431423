// SPDX-License-Identifier: Apache-2.0
// The kernels for x86 machines with AVX2: four lanes. Compiled with -mavx2.
#define GNMR_LANES 4
#include "gnmr/core/signal_lanes.h"

namespace gnmr {

extern const SignalKernels kAvx2SignalKernels;
const SignalKernels kAvx2SignalKernels{"avx2", ratios<float>, ratios<double>, changes<float>, changes<double>};

}  // namespace gnmr
