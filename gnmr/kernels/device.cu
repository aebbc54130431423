// SPDX-License-Identifier: Apache-2.0
#include "gnmr/kernels/device.h"

#include <cuda_runtime.h>

namespace gnmr::kernels {

bool available() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) == cudaSuccess) return devices > 0;
  cudaGetLastError();  // a question leaves no error behind
  return false;
}

}  // namespace gnmr::kernels
