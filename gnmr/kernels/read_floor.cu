// SPDX-License-Identifier: Apache-2.0
#include "gnmr/kernels/cuda_memory.h"
#include "gnmr/kernels/read_floor.h"

namespace gnmr::kernels {
namespace {

// As many bytes in flight as the norms have.
constexpr unsigned kThreads = 256;
constexpr unsigned kBlocksAnSm = 4;
constexpr unsigned kBatch = 8;
constexpr std::size_t kPieceVectors = 16 * 1024;  // 256 KB a block: what eight chunks are

/// Vectors from `first` to `last`, `kBatch` at a time, each `step` apart.
__device__ unsigned fold(const uint4* __restrict__ data, std::size_t first, std::size_t last, std::size_t step) {
  unsigned folded = 0;
  for (; first < last; first += kBatch * step) {
    uint4 batch[kBatch];
#pragma unroll
    for (unsigned i = 0; i < kBatch; ++i) {
      batch[i] = first + i * step < last ? __ldg(data + first + i * step) : uint4{};
    }
#pragma unroll
    for (unsigned i = 0; i < kBatch; ++i) folded ^= batch[i].x ^ batch[i].y ^ batch[i].z ^ batch[i].w;
  }
  return folded;
}

__device__ void add_to_sink(unsigned folded, std::uint32_t* sink) {
  folded = __reduce_xor_sync(0xffffffffu, folded);
  if (threadIdx.x % 32 == 0) atomicXor(sink, folded);
}

__global__ void __launch_bounds__(kThreads, kBlocksAnSm)
    read_pieces(const uint4* __restrict__ data, std::size_t vectors, std::uint32_t* sink) {
  const std::size_t first = blockIdx.x * kPieceVectors;
  add_to_sink(fold(data, first + threadIdx.x, min(first + kPieceVectors, vectors), kThreads), sink);
}

__global__ void __launch_bounds__(kThreads, kBlocksAnSm)
    read_strides(const uint4* __restrict__ data, std::size_t vectors, std::uint32_t* sink) {
  const std::size_t threads = static_cast<std::size_t>(gridDim.x) * kThreads;
  add_to_sink(fold(data, static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x, vectors, threads), sink);
}

}  // namespace

void read_floor(const void* data, std::size_t bytes, ReadOrder order, std::uint32_t* sink, void* stream) {
  const auto* const vectors = static_cast<const uint4*>(data);
  const std::size_t count = bytes / sizeof(uint4);
  const cudaStream_t on = stream_of(stream);
  check_cuda(cudaMemsetAsync(sink, 0, sizeof(std::uint32_t), on), "cudaMemsetAsync");
  if (count == 0) return;
  if (order == ReadOrder::pieces) {
    read_pieces<<<blocks_for(count, kPieceVectors), kThreads, 0, on>>>(vectors, count, sink);
  } else {
    int device = 0;
    int sms = 0;
    check_cuda(cudaGetDevice(&device), "cudaGetDevice");
    check_cuda(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device), "cudaDeviceGetAttribute");
    read_strides<<<static_cast<unsigned>(sms) * kBlocksAnSm, kThreads, 0, on>>>(vectors, count, sink);
  }
  check_launch("read_floor");
}

}  // namespace gnmr::kernels
