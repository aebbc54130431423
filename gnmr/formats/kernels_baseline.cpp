// SPDX-License-Identifier: Apache-2.0
// The kernels that run on every machine.
#include "gnmr/formats/kernel_loops.h"

namespace gnmr::formats {

extern const Kernels kBaselineKernels;
constinit const Kernels kBaselineKernels = make_kernels("baseline");

}  // namespace gnmr::formats
