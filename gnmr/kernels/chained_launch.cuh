// SPDX-License-Identifier: Apache-2.0
// Launches of small kernels that follow each other on a stream: the next is set up while the one before it ends
// (programmatic dependent launch). For .cu files of this layer.
//
// Goals: no gap between kernels. Non-goals: work before the other kernel has ended. A kernel that is launched so begins
// with `wait_for_kernels_before`, in every thread. Code for GPUs before Hopper cannot wait, and is launched as ever.
#pragma once

#include <cuda_runtime.h>

#include "gnmr/kernels/cuda_memory.h"

namespace gnmr::kernels {

constexpr int kFirstThatWaits = 90;  // architecture

/// Until everything that the stream held before this kernel is done, and its writes are visible.
__device__ __forceinline__ void wait_for_kernels_before() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// Whether a kernel's code waits.
template <class Kernel>
bool can_wait(const char* name, Kernel* kernel) {
  cudaFuncAttributes compiled{};
  check_cuda(cudaFuncGetAttributes(&compiled, kernel), name);
  return compiled.ptxVersion >= kFirstThatWaits;
}

/// How a kernel is launched.
struct ChainedLaunch {
  unsigned blocks = 0;
  unsigned threads = 0;
  cudaStream_t stream = nullptr;
  unsigned shared_bytes = 0;

  template <class... Parameters, class... Arguments>
  void operator()(const char* name, void (*kernel)(Parameters...), const Arguments&... arguments) const {
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = blocks;
    config.blockDim = threads;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    static const bool waits = can_wait(name, kernel);  // all kernels are compiled for the same architectures
    config.attrs = &attribute;
    config.numAttrs = waits ? 1 : 0;
    check_cuda(cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...), name);
  }
};

}  // namespace gnmr::kernels
