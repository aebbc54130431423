// SPDX-License-Identifier: Apache-2.0
#include "gnmr/formats/kernels.h"

namespace gnmr::formats {

extern const Kernels kBaselineKernels;
#if defined(GNMR_HAVE_AVX2_KERNELS)
extern const Kernels kAvx2Kernels;
#endif

KernelList available_kernels() {
  KernelList list{};
#if defined(GNMR_HAVE_AVX2_KERNELS)
  if (__builtin_cpu_supports("avx2")) list.kernels[list.count++] = &kAvx2Kernels;
#endif
  list.kernels[list.count++] = &kBaselineKernels;
  return list;
}

const Kernels& best_kernels() {
  static const Kernels& best = *available_kernels().kernels[0];
  return best;
}

}  // namespace gnmr::formats
