// SPDX-License-Identifier: Apache-2.0
// Shapes of tiles, what the kernel knows of a GEMM, and where things lie. For tile_product_kernel.cuh.
#pragma once

#include "gnmr/kernels/tile_product_pipeline.cuh"
#include "gnmr/kernels/wgmma_e4m3.cuh"

namespace gnmr::kernels {

inline constexpr unsigned kProductBlock = 128;  // elements of K under one scale; as E4M3, a row of the swizzle

/// The shape of a tile and how it is worked on.
template <unsigned kConsumerCount, unsigned kBufferCount, unsigned kStageCount>
struct TileShape {
  static constexpr unsigned kConsumers = kConsumerCount;  // warpgroups, of 64 rows each
  static constexpr unsigned kBuffers = kBufferCount;      // sums that a consumer has in flight
  static constexpr unsigned kStages = kStageCount;
  static constexpr unsigned kRows = 64 * kConsumers;
  static constexpr unsigned kColumns = kWgmmaColumns;
  static constexpr unsigned kThreads = 128 * (kConsumers + 1);
  // All of an SM's registers; the launch gives everybody the same.
  static constexpr unsigned kConsumerRegisters = kConsumers == 2 ? 240 : 160;
  static constexpr unsigned kProducerRegisters = kConsumers == 2 ? 24 : 32;
  static constexpr unsigned kSums = kWgmmaSums;
  static constexpr unsigned kEights = kColumns / 8;
  // Whether b's scales by tile are read while multiplications are in flight, as registers allow; else when needed.
  static constexpr bool kKeepsScales = kSums * (1 + kBuffers) + 2 * kEights <= (kConsumers == 2 ? 224 : 144);

  static constexpr unsigned kBytesOfA = kRows * kProductBlock;
  static constexpr unsigned kBytesOfB = kColumns * kProductBlock;
  static constexpr unsigned kBytesOfAScales = kRows * 4;
  static constexpr unsigned kBytesOfBScales = kColumns * 4;
  static constexpr unsigned kScalesAt = kStages * (kBytesOfA + kBytesOfB);
  static constexpr unsigned kBarriersAt = kScalesAt + kStages * (kBytesOfAScales + kBytesOfBScales);
  static constexpr unsigned kSharedBytes = kBarriersAt + 2 * 8 * kStages + 1024;  // 1024: the start is rounded up

  static_assert(kConsumers == 2 || kConsumers == 3);
  static_assert(kBuffers == 1 || kBuffers == 2);
  static_assert(kColumns == kProductBlock);  // one scale per tile where b's are by block
  static_assert(kSharedBytes <= 232448);
};

/// All that the kernel knows of a GEMM.
struct TileProductJob {
  CUtensorMap a;              // boxes of 128 by the tile's rows
  CUtensorMap b;              // boxes of 128 by the tile's columns
  CUtensorMap a_scales;       // boxes of the tile's rows by 1
  CUtensorMap b_scales;       // boxes of the tile's columns by 1; not for blocks
  const float* block_scales;  // of b, by 128 x 128
  unsigned block_scale_stride;
  void* product;
  bool is_float32;
  unsigned rows;
  unsigned columns;
  unsigned blocks;  // of K
  unsigned tiles_down;
  unsigned tiles_across;
  unsigned band;  // tiles down that are worked on together, for the sake of L2
};

/// Where the tile of that number is: bands of `band` tiles down, in which tiles follow each other downward.
struct TilePlace {
  __device__ __forceinline__ TilePlace(const TileProductJob& job, unsigned index) {
    const unsigned in_band = job.band * job.tiles_across;
    const unsigned first = index / in_band * job.band;
    const unsigned height = min(job.band, job.tiles_down - first);
    const unsigned rest = index % in_band;
    down = first + rest % height;
    across = rest / height;
  }
  unsigned down;
  unsigned across;
};

/// A stage of the ring and how often the ring was gone round.
template <class Shape>
struct RingPlace {
  __device__ __forceinline__ void advance() {
    ++stage;
    if (stage == Shape::kStages) {
      stage = 0;
      parity ^= 1u;
    }
  }
  unsigned stage = 0;
  unsigned parity = 0;
};

/// Addresses in shared memory.
template <class Shape>
struct SharedPlaces {
  __device__ __forceinline__ unsigned a(unsigned stage) const { return base + stage * kBoth; }
  __device__ __forceinline__ unsigned b(unsigned stage) const { return base + stage * kBoth + Shape::kBytesOfA; }
  __device__ __forceinline__ unsigned a_scales(unsigned stage) const {
    return base + Shape::kScalesAt + stage * Shape::kBytesOfAScales;
  }
  __device__ __forceinline__ unsigned b_scales(unsigned stage) const {
    return base + Shape::kScalesAt + Shape::kStages * Shape::kBytesOfAScales + stage * Shape::kBytesOfBScales;
  }
  __device__ __forceinline__ unsigned full(unsigned stage) const { return base + Shape::kBarriersAt + 8 * stage; }
  __device__ __forceinline__ unsigned empty(unsigned stage) const {
    return base + Shape::kBarriersAt + 8 * (Shape::kStages + stage);
  }
  static constexpr unsigned kBoth = Shape::kBytesOfA + Shape::kBytesOfB;
  unsigned base;  // a multiple of 1024
};

}  // namespace gnmr::kernels
