// SPDX-License-Identifier: Apache-2.0
// Sums over the threads of a warp and of a block in a fixed order, and which block comes last.
//
// Goals: the same bits in every run. Non-goals: floating-point atomics.
#pragma once

#include <cuda_runtime.h>

namespace gnmr::kernels {

constexpr unsigned kWarpLanes = 32;

/// The sum over a warp, in every lane; all lanes call it.
template <class Number>
__device__ __forceinline__ Number warp_sum(Number value) {
#pragma unroll
  for (unsigned distance = kWarpLanes / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, distance);
  }
  return value;
}

/// The sum over a block of `kThreads`, in its thread 0; all threads call it, and may call it again at once.
template <unsigned kThreads, class Number>
__device__ __forceinline__ Number block_sum(Number value) {
  __shared__ Number of_warps[kThreads / kWarpLanes];
  value = warp_sum(value);
  __syncthreads();  // the last call's sums have been read
  if (threadIdx.x % kWarpLanes == 0) of_warps[threadIdx.x / kWarpLanes] = value;
  __syncthreads();
  if (threadIdx.x != 0) return value;
  Number sum = of_warps[0];
#pragma unroll
  for (unsigned warp = 1; warp < kThreads / kWarpLanes; ++warp) sum += of_warps[warp];
  return sum;
}

/// Whether this block is the last of so many to come here; all threads call it. What thread 0 of the other blocks wrote
/// before is visible to reads past L1 (`__ldcg`). The ticket is 0 again afterwards.
__device__ __forceinline__ bool is_last_block(unsigned* ticket, unsigned blocks) {
  __shared__ bool last;
  if (threadIdx.x == 0) {
    __threadfence();
    last = atomicInc(ticket, blocks - 1) == blocks - 1;
    __threadfence();
  }
  __syncthreads();
  return last;
}

/// The same of all blocks of the grid.
__device__ __forceinline__ bool is_last_block(unsigned* ticket) { return is_last_block(ticket, gridDim.x); }

}  // namespace gnmr::kernels
