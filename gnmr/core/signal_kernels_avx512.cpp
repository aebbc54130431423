// SPDX-License-Identifier: Apache-2.0
// The kernels for x86 machines with AVX-512: four lanes too, with twice the registers and with masks.
#define GNMR_LANES 4
#include "gnmr/core/signal_lanes.h"

namespace gnmr {

extern const SignalKernels kAvx512SignalKernels;
const SignalKernels kAvx512SignalKernels{"avx512", ratios<float>, ratios<double>, changes<float>, changes<double>};

}  // namespace gnmr
