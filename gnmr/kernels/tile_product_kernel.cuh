// SPDX-License-Identifier: Apache-2.0
// The kernel behind tile_product.h, for any shape of tile. For files compiled for sm_90a.
//
// A block of threads is one producer warpgroup, of which one thread works, and two or three consumer warpgroups, each
// with 64 rows of the tile. The producer copies 128 of K of both operands, and their scales, into the next stage of a
// ring; the consumers multiply a stage into `sums` with the tensor cores and promote those, times their scales, into
// `totals` in float32. What hides a promotion is the other consumers' multiplications or, with two sets of sums, the
// consumer's own next ones.
//
// Shared memory has 128 bytes per cycle for what TMA writes, for what wgmma reads (both operands anew for each 64 rows)
// and for b's scales by tile, of which every warp reads all, eightfold. Estimated cycles of it for each 256 that
// 64 x 128 x 128 take in the tensor cores, and milliseconds on an H200, to bfloat16, each run alone, of a first version
// of this kernel that differs in when addresses are computed (bench/gpu_products.cu):
//
//   tile, consumers, sets of sums   wgmma    TMA   scales   13824 x 5120   5120 x 5120   5120 x 13824   over 8192
//   192 x 128, 3, 1; b by tile        192    107      128          1.134         0.442          1.194
//   128 x 128, 2, 1; b by tile        192    128      128          1.196         0.445          1.206
//   128 x 128, 2, 2; b by block       192    128        0          1.033         0.400              -
//
// Tried for 13824 x 5120 and lost: consumers that take turns at the tensor cores by named barriers (192 x 128: 1.337;
// 256 x 128: 1.300, without turns 1.253), clusters of two that share a's rows (192 x 128: 1.154; 128 x 128: 1.391), two
// sets of sums with b by tile (1.395).
#pragma once

#include "gnmr/kernels/tile_product_consumer.cuh"
#include "gnmr/kernels/tile_product_tiles.cuh"

namespace gnmr::kernels {

/// Fills the ring; one thread.
template <class Shape, bool kBlockScales>
__device__ __forceinline__ void produce(const TileProductJob& job, const SharedPlaces<Shape> shared) {
  constexpr unsigned kBytes =
      Shape::kBytesOfA + Shape::kBytesOfB + Shape::kRows * 4 + (kBlockScales ? 0 : Shape::kColumns * 4);
  const unsigned tiles = job.tiles_down * job.tiles_across;
  RingPlace<Shape> ring;
  for (unsigned index = blockIdx.x; index < tiles; index += gridDim.x) {
    const TilePlace place(job, index);
    const unsigned row = place.down * Shape::kRows;
    const unsigned column = place.across * Shape::kColumns;
#pragma unroll 1
    for (unsigned block = 0; block < job.blocks; ++block) {
      wait_barrier(shared.empty(ring.stage), ring.parity ^ 1u);
      const unsigned full = shared.full(ring.stage);
      arrive_expecting(full, kBytes);
      const unsigned k = block * kProductBlock;
      copy_box(shared.a(ring.stage), job.a, k, row, full);
      copy_box(shared.b(ring.stage), job.b, k, column, full);
      copy_box(shared.a_scales(ring.stage), job.a_scales, row, block, full);
      if constexpr (!kBlockScales) copy_box(shared.b_scales(ring.stage), job.b_scales, column, block, full);
      ring.advance();
    }
  }
}

template <class Shape, bool kBlockScales>
__global__ void __launch_bounds__(Shape::kThreads, 1)
    multiply_tiles_kernel(const __grid_constant__ TileProductJob job) {
  extern __shared__ __align__(1024) unsigned char memory[];
  // Through a shuffle, or the compiler makes the address anew for every block of K.
  const SharedPlaces<Shape> shared{__shfl_sync(0xffffffffu, (shared_address_of(memory) + 1023u) / 1024u * 1024u, 0)};
  const unsigned warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
  const unsigned warpgroup = warp / 4;
  if (threadIdx.x == 0) {
    for (unsigned stage = 0; stage < Shape::kStages; ++stage) {
      init_barrier(shared.full(stage), 1);
      init_barrier(shared.empty(stage), 4 * Shape::kConsumers);
    }
    publish_barriers();
  }
  __syncthreads();
  if (warpgroup == Shape::kConsumers) {
    give_registers_back<Shape::kProducerRegisters>();
    if (threadIdx.x == Shape::kConsumers * 128) {
      prefetch_map(job.a);
      prefetch_map(job.b);
      prefetch_map(job.a_scales);
      if constexpr (!kBlockScales) prefetch_map(job.b_scales);
      produce<Shape, kBlockScales>(job, shared);
    }
    __syncwarp();
  } else {
    take_registers<Shape::kConsumerRegisters>();
    Consumer<Shape, kBlockScales>(job, shared, warpgroup).run();
  }
}

}  // namespace gnmr::kernels
