// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include "gnmr/kernels/cuda_memory.h"
#include "gnmr/kernels/device.h"

namespace gnmr::kernels {

bool available() {
  // Asked once: layers ask for every matrix.
  static const bool has_device = [] {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) == cudaSuccess) return devices > 0;
    cudaGetLastError();  // a question leaves no error behind
    return false;
  }();
  return has_device;
}

int compute_capability() {
  static const int capability = [] {
    int device = 0;
    int major = 0;
    int minor = 0;
    if (!available() || cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess ||
        cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) != cudaSuccess) {
      cudaGetLastError();
      return 0;
    }
    return 10 * major + minor;
  }();
  return capability;
}

void copy_on_device(const void* from, void* to, std::size_t size, void* stream) {
  check_cuda(cudaMemcpyAsync(to, from, size, cudaMemcpyDeviceToDevice, stream_of(stream)), "cudaMemcpyAsync");
}

void copy_to_host(const void* from, void* to, std::size_t size, void* stream) {
  check_cuda(cudaMemcpyAsync(to, from, size, cudaMemcpyDeviceToHost, stream_of(stream)), "cudaMemcpyAsync");
  check_cuda(cudaStreamSynchronize(stream_of(stream)), "cudaStreamSynchronize");
}

}  // namespace gnmr::kernels
