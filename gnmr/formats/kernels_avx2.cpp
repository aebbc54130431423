// SPDX-License-Identifier: Apache-2.0
// The kernels for x86 machines with AVX2. Compiled with -mavx2.
#include "gnmr/formats/kernel_loops.h"

namespace gnmr::formats {

extern const Kernels kAvx2Kernels;
constinit const Kernels kAvx2Kernels = make_kernels("avx2");

}  // namespace gnmr::formats
