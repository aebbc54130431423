// SPDX-License-Identifier: Apache-2.0
// The consumers of tile_product_kernel.cuh: multiplication, promotion, stores.
#pragma once

#include <cuda_bf16.h>

#include <cstring>

#include "gnmr/kernels/tile_product_tiles.cuh"
#include "gnmr/kernels/wgmma_e4m3.cuh"

namespace gnmr::kernels {

/// What a thread of a consumer warpgroup does.
template <class Shape, bool kBlockScales>
class Consumer {
 public:
  __device__ __forceinline__ Consumer(const TileProductJob& job, SharedPlaces<Shape> shared, unsigned warpgroup)
      : job_(job),
        shared_(shared),
        first_operand_(wgmma_operand(shared.base)),
        first_row_(warpgroup * 64),
        lane_(threadIdx.x % 32),
        row_(first_row_ + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4) {}

  __device__ __forceinline__ void run() {
    const unsigned tiles = job_.tiles_down * job_.tiles_across;
    for (unsigned index = blockIdx.x; index < tiles; index += gridDim.x) {
      const TilePlace place(job_, index);
      const unsigned column = place.across * Shape::kColumns;
      const unsigned row = place.down * Shape::kRows + row_;
      float totals[Shape::kSums];
#pragma unroll
      for (unsigned i = 0; i < Shape::kSums; ++i) totals[i] = 0.0f;
      if constexpr (kBlockScales) {
        block_scale_ = job_.block_scales + place.across * std::size_t{job_.block_scale_stride};
      }
      if constexpr (Shape::kBuffers == 1) {
        add_one_by_one(totals);
      } else {
        add_two_at_once(totals);
      }
      if (job_.is_float32) {
        store_float32(totals, row, column);
      } else {
        store_bfloat16(totals, row, column);
      }
    }
  }

 private:
  using Sums = float[Shape::kSums];

  /// Scales of a block: of the thread's rows, and of its columns where those are kept.
  struct Scales {
    float a[2];
    float2 b[kBlockScales || !Shape::kKeepsScales ? 1 : Shape::kEights];
  };

  __device__ __forceinline__ void await_stage(const RingPlace<Shape>& at) const {
    wait_barrier(shared_.full(at.stage), at.parity);
  }

  /// The stage has been read by this warp.
  __device__ __forceinline__ void release(unsigned stage) const {
    __syncwarp();
    if (lane_ == 0) arrive(shared_.empty(stage));
  }

  /// What a block's multiplications read, as descriptors of wgmma.
  struct Operands {
    std::uint64_t a;
    std::uint64_t b;
  };

  /// Before the waits, where there is time: held there, or the compiler does it after them.
  __device__ __forceinline__ Operands operands_of(unsigned stage) const {
    const unsigned start = stage * shared_.kBoth;
    Operands operands{
        wgmma_operand_at(first_operand_, (start + first_row_ * kProductBlock) / 16),
        wgmma_operand_at(first_operand_, (start + Shape::kBytesOfA) / 16),
    };
    asm volatile("" : "+l"(operands.a), "+l"(operands.b));
    return operands;
  }

  /// Starts a block's multiplications.
  __device__ __forceinline__ void begin(Sums& sums, const Operands& operands) const {
    hold_in_place(sums);
    wgmma_fence();
    wgmma<false>(sums, operands.a, operands.b);
#pragma unroll
    for (unsigned k = 32; k < kProductBlock; k += 32) {
      wgmma<true>(sums, wgmma_operand_at(operands.a, k / 16), wgmma_operand_at(operands.b, k / 16));
    }
    wgmma_commit();
  }

  /// Waits until the multiplications into `sums` are done, with those of `kInFlight` later blocks still going.
  template <int kInFlight>
  __device__ __forceinline__ void finish(Sums& sums) const {
    wgmma_wait<kInFlight>();
    hold_in_place(sums);
  }

  static __device__ __forceinline__ float load_shared(unsigned address) {
    float value;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
    return value;
  }
  static __device__ __forceinline__ float2 load_shared_pair(unsigned address) {
    float2 pair;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(pair.x), "=f"(pair.y) : "r"(address) : "memory");
    return pair;
  }
  __device__ __forceinline__ float2 b_scales(unsigned stage, unsigned eight) const {
    return load_shared_pair(shared_.b_scales(stage) + (8 * eight + 2 * (lane_ % 4)) * 4);
  }

  __device__ __forceinline__ Scales load_scales(unsigned stage, unsigned block) const {
    Scales scales;
    if constexpr (kBlockScales) {
      scales.b[0].x = __ldg(block_scale_ + block);
    } else if constexpr (Shape::kKeepsScales) {
#pragma unroll
      for (unsigned eight = 0; eight < Shape::kEights; ++eight) scales.b[eight] = b_scales(stage, eight);
    }
    const unsigned at = shared_.a_scales(stage) + row_ * 4;
    scales.a[0] = load_shared(at);
    scales.a[1] = load_shared(at + 8 * 4);
    return scales;
  }

  /// totals += sums times scales. The scales are multiplied first: one may be huge where the other is tiny.
  __device__ __forceinline__ void promote(Sums& totals, const Sums& sums, const Scales& scales, unsigned stage) const {
    const float upper = scales.a[0];
    const float lower = scales.a[1];
    if constexpr (kBlockScales) {
      const float for_upper = upper * scales.b[0].x;
      const float for_lower = lower * scales.b[0].x;
#pragma unroll
      for (unsigned i = 0; i < Shape::kSums; ++i) {
        totals[i] = fmaf(sums[i], i % 4 < 2 ? for_upper : for_lower, totals[i]);
      }
    } else {
#pragma unroll
      for (unsigned eight = 0; eight < Shape::kEights; ++eight) {
        float2 b;
        if constexpr (Shape::kKeepsScales) {
          b = scales.b[eight];
        } else {
          b = b_scales(stage, eight);
        }
        totals[4 * eight] = fmaf(sums[4 * eight], upper * b.x, totals[4 * eight]);
        totals[4 * eight + 1] = fmaf(sums[4 * eight + 1], upper * b.y, totals[4 * eight + 1]);
        totals[4 * eight + 2] = fmaf(sums[4 * eight + 2], lower * b.x, totals[4 * eight + 2]);
        totals[4 * eight + 3] = fmaf(sums[4 * eight + 3], lower * b.y, totals[4 * eight + 3]);
      }
    }
  }

  /// The stage is released as soon as nothing of it is needed.
  __device__ __forceinline__ void promote_and_release(Sums& totals, const Sums& sums, const Scales& scales,
                                                      unsigned stage) const {
    constexpr bool kIsRead = kBlockScales || Shape::kKeepsScales;
    if constexpr (kIsRead) release(stage);
    promote(totals, sums, scales, stage);
    if constexpr (!kIsRead) release(stage);
  }

  /// One set of sums: other consumers multiply while this one promotes.
  __device__ __forceinline__ void add_one_by_one(Sums& totals) {
    Sums sums;
#pragma unroll 1
    for (unsigned block = 0; block < job_.blocks; ++block) {
      const Operands operands = operands_of(ring_.stage);
      await_stage(ring_);
      begin(sums, operands);
      const Scales scales = load_scales(ring_.stage, block);
      finish<0>(sums);
      promote_and_release(totals, sums, scales, ring_.stage);
      ring_.advance();
    }
  }

  /// Two sets of sums, of blocks that follow each other: one is promoted while the next is multiplied.
  __device__ __forceinline__ void add_two_at_once(Sums& totals) {
    Sums even;
    Sums odd;
    unsigned block = 0;
    const Operands operands = operands_of(ring_.stage);
    await_stage(ring_);
    begin(even, operands);
#pragma unroll 1
    for (; block + 2 < job_.blocks; block += 2) {
      step(totals, even, odd, block);
      step(totals, odd, even, block + 1);
    }
    if (block + 1 < job_.blocks) {
      step(totals, even, odd, block);
      last_step(totals, odd, block + 1);
    } else {
      last_step(totals, even, block);
    }
  }

  /// Begins the next block and promotes this one.
  __device__ __forceinline__ void step(Sums& totals, Sums& now, Sums& next, unsigned block) {
    const unsigned stage = ring_.stage;
    ring_.advance();
    const Operands operands = operands_of(ring_.stage);
    await_stage(ring_);
    begin(next, operands);
    const Scales scales = load_scales(stage, block);
    finish<1>(now);
    promote_and_release(totals, now, scales, stage);
  }

  __device__ __forceinline__ void last_step(Sums& totals, Sums& now, unsigned block) {
    const Scales scales = load_scales(ring_.stage, block);
    finish<0>(now);
    promote_and_release(totals, now, scales, ring_.stage);
    ring_.advance();
  }

  /// A thread's pairs of columns; four threads write 32 bytes.
  __device__ __forceinline__ void store_float32(const Sums& totals, unsigned row, unsigned column) const {
    auto* const product = static_cast<float*>(job_.product);
#pragma unroll
    for (unsigned half = 0; half < 2; ++half) {
      const unsigned to = row + 8 * half;
      float* const at = product + std::size_t{to} * job_.columns + column + 2 * (lane_ % 4);
      if (to >= job_.rows) continue;
#pragma unroll
      for (unsigned eight = 0; eight < Shape::kEights; ++eight) {
        if (column + 8 * eight >= job_.columns) continue;
        *reinterpret_cast<float2*>(at + 8 * eight) = {totals[4 * eight + 2 * half], totals[4 * eight + 2 * half + 1]};
      }
    }
  }

  /// Four threads exchange their pairs, so that each has eight columns: 16 bytes.
  __device__ __forceinline__ void store_bfloat16(const Sums& totals, unsigned row, unsigned column) const {
    auto* const product = static_cast<__nv_bfloat16*>(job_.product);
    const unsigned quarter = lane_ % 4;
#pragma unroll
    for (unsigned half = 0; half < 2; ++half) {
      const unsigned to = row + 8 * half;
      __nv_bfloat16* const at = product + std::size_t{to} * job_.columns + column + 8 * quarter;
#pragma unroll
      for (unsigned first = 0; first < Shape::kEights; first += 4) {
        unsigned words[4];
#pragma unroll
        for (unsigned i = 0; i < 4; ++i) {
          const unsigned at_sum = 4 * (first + i) + 2 * half;
          words[i] = pair_of(totals[at_sum], totals[at_sum + 1]);
        }
        turn_in_four(words, quarter);
        if (to >= job_.rows || column + 8 * (first + quarter) >= job_.columns) continue;
        *reinterpret_cast<uint4*>(at + 8 * first) = {words[0], words[1], words[2], words[3]};
      }
    }
  }

  static __device__ __forceinline__ unsigned pair_of(float low, float high) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    unsigned bits;
    memcpy(&bits, &pair, sizeof bits);
    return bits;
  }

  /// words[i] of thread j of four becomes words[j] of thread i.
  static __device__ __forceinline__ void turn_in_four(unsigned (&words)[4], unsigned quarter) {
    const bool is_odd = (quarter & 1u) != 0;
    const bool is_high = (quarter & 2u) != 0;
#pragma unroll
    for (unsigned i = 0; i < 4; i += 2) {
      const unsigned got = __shfl_xor_sync(0xffffffffu, is_odd ? words[i] : words[i + 1], 1);
      words[i] = is_odd ? got : words[i];
      words[i + 1] = is_odd ? words[i + 1] : got;
    }
#pragma unroll
    for (unsigned i = 0; i < 2; ++i) {
      const unsigned got = __shfl_xor_sync(0xffffffffu, is_high ? words[i] : words[i + 2], 2);
      words[i] = is_high ? got : words[i];
      words[i + 2] = is_high ? words[i + 2] : got;
    }
  }

  const TileProductJob& job_;
  SharedPlaces<Shape> shared_;
  std::uint64_t first_operand_;  // a's, in stage 0
  unsigned first_row_;           // of the warpgroup, in the tile
  unsigned lane_;
  unsigned row_;  // the first of the thread's, in the tile; the other is 8 below
  RingPlace<Shape> ring_ = {};
  const float* block_scale_ = nullptr;
};

}  // namespace gnmr::kernels
