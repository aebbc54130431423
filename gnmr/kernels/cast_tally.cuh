// SPDX-License-Identifier: Apache-2.0
// What quantization did to elements: counts and sums of squares of a lane, of a block, of all blocks. For .cu
// files compiled with -fmad=false.
//
// Goals: a few instructions per usual element; the same bits in every run. Non-goals: FP8 data.
#pragma once

#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "gnmr/formats/cast.h"
#include "gnmr/kernels/block_sum.cuh"
#include "gnmr/kernels/cast_patch.cuh"

namespace gnmr::kernels {

using formats::Format;

/// The values of four FP8 numbers, by the hardware's conversion; none of them is NaN.
template <Format kFormat>
__device__ __forceinline__ void values_of(unsigned codes, float (&values)[4]) {
#pragma unroll
  for (unsigned half = 0; half < 2; ++half) {
    const auto two = static_cast<__nv_fp8x2_storage_t>(codes >> 16 * half);
    const float2 both =
        __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(two, kFormat == Format::e4m3 ? __NV_E4M3 : __NV_E5M2)));
    values[2 * half] = both.x;
    values[2 * half + 1] = both.y;
  }
}

// Squares of plain elements and of their errors are added up in float, by four sums of at most 16 each, as long as the
// largest of a lane's elements is between these: squares then do not overflow, and what vanishes is below 2^-64 of the
// largest.
constexpr unsigned kLeastTalliedBits = 0x2b800000u;  // 2^-40
constexpr unsigned kMostTalliedBits = 0x58800000u;   // 2^50

/// What a lane's plain elements are, whatever their scales.
struct PlainValues {
  float squares = 0;
  unsigned not_zero = 0;
};

/// What became of a lane's elements; `Statistics` without its sum of elements. `kMayOverflow`: scales come from
/// elsewhere, so that plain elements may be too large for them.
template <bool kMayOverflow>
struct Tally {
  unsigned non_finite = 0;
  unsigned overflowed = 0;
  unsigned flushed = 0;
  double squared_error = 0;
  double squared_values = 0;

  static __device__ bool is_plain_for(unsigned largest_bits) {
    return largest_bits == 0 || (largest_bits >= kLeastTalliedBits && largest_bits <= kMostTalliedBits);
  }

  /// Four elements, their quotients, their FP8 data. A lane's elements are all plain, and `finish` follows them, or
  /// none.
  template <Format kFormat, bool kPlain>
  __device__ __forceinline__ void add(const float (&values)[4], const float (&quotients)[4], unsigned codes,
                                      float scale) {
    if constexpr (kPlain) {
      add_plain<kFormat>(values, quotients, codes, scale);
    } else {
      add_any<kFormat>(values, quotients, codes, scale);
    }
  }

  /// After the last of plain elements, which were these.
  __device__ void finish(const PlainValues& values) {
    squared_error = (errors_[0] + errors_[1]) + (errors_[2] + errors_[3]);
    squared_values = values.squares;
    // Every 0 has the bits of a 0.
    flushed = values.not_zero - ((codes_not_zero_ * 0x01010101u) >> 24);
  }

 private:
  /// Half way to the next number of the grid, which for E5M2 is the even one.
  template <Format kFormat>
  static __device__ bool is_beyond(float magnitude) {
    return kFormat == Format::e4m3 ? magnitude > 464.0f : magnitude >= 61440.0f;
  }

  template <Format kFormat>
  __device__ __forceinline__ void add_plain(const float (&values)[4], const float (&quotients)[4], unsigned codes,
                                            float scale) {
    float rounded[4];
    values_of<kFormat>(codes, rounded);
#pragma unroll
    for (unsigned k = 0; k < 4; ++k) {
      const float error = rounded[k] * scale - values[k];
      errors_[k] = __fmaf_rn(error, error, errors_[k]);
      if (kMayOverflow) overflowed += is_beyond<kFormat>(fabsf(quotients[k])) ? 1 : 0;
    }
    // A magnitude that is not 0 carries into the highest bit of its byte.
    codes_not_zero_ += (((codes & 0x7f7f7f7fu) + 0x7f7f7f7fu) & 0x80808080u) >> 7;
  }

  template <Format kFormat>
  __device__ __forceinline__ void add_any(const float (&values)[4], const float (&quotients)[4], unsigned codes,
                                          float scale) {
#pragma unroll
    for (unsigned k = 0; k < 4; ++k) {
      const float rounded = formats::from_format<kFormat>(codes >> 8 * k & 0xffu);
      const float restored = rounded * scale;
      const bool is_finite = isfinite(values[k]);
      const bool both = is_finite && isfinite(restored);
      const double error = both ? restored - values[k] : 0.0f;
      const double value = both ? values[k] : 0.0f;
      squared_error = fma(error, error, squared_error);
      squared_values = fma(value, value, squared_values);
      non_finite += is_finite ? 0 : 1;
      overflowed += is_beyond<kFormat>(fabsf(quotients[k])) ? 1 : 0;
      flushed += is_finite && values[k] != 0 && rounded == 0 ? 1 : 0;
    }
  }

  float errors_[4] = {};
  unsigned codes_not_zero_ = 0;  // four counts, one per byte
};

/// The squares of a lane's elements, where they fit into float, and how many are not 0.
template <class Element>
__device__ __forceinline__ PlainValues plain_values(const Patch<Element>& patch) {
  float squares[4] = {};
  unsigned not_zero = 0;
#pragma unroll
  for (unsigned i = 0; i < kRowsPerLane; ++i) {
#pragma unroll
    for (unsigned v = 0; v < kVectors<Element>; ++v) {
#pragma unroll
      for (unsigned k = 0; k < Element::kPerVector; ++k) {
        const float value = Element::value(patch.at[i][v], k);
        squares[k % 4] = __fmaf_rn(value, value, squares[k % 4]);
      }
#pragma unroll
      for (const unsigned word : patch.at[i][v].words) not_zero += Element::not_zero(word);
    }
  }
  return {(squares[0] + squares[1]) + (squares[2] + squares[3]), (not_zero & 0xffffu) + (not_zero >> 16)};
}

// Counts of a block's 128 x 128 elements, three in one number.
constexpr unsigned kCountBits = 21;
constexpr unsigned long long kCountMask = (1ull << kCountBits) - 1;

__device__ __forceinline__ unsigned long long packed_counts(unsigned non_finite, unsigned overflowed,
                                                            unsigned flushed) {
  return non_finite | static_cast<unsigned long long>(overflowed) << kCountBits |
         static_cast<unsigned long long>(flushed) << 2 * kCountBits;
}

/// What a block counted.
struct BlockTally {
  double squared_error;
  double squared_values;
  unsigned long long counts;
};

/// Numbers of all threads of a block, in every lane of the warp that asks.
template <class Number>
__device__ __forceinline__ Number sum_of_threads(const Number (&numbers)[kThreads]) {
  Number sum = 0;
#pragma unroll
  for (unsigned warp = 0; warp < kWarps; ++warp) sum += numbers[warp * kWarpLanes + threadIdx.x % kWarpLanes];
  return warp_sum(sum);
}

/// What this block counted, to its place among the partial sums. A warp adds up each number; all threads call it.
template <class Tally, unsigned kSides>
__device__ __forceinline__ void add_up_block(const Tally (&tallies)[kSides], BlockTally* partials) {
  __shared__ double squares[2 * kSides][kThreads];
  __shared__ unsigned long long counts[kSides][kThreads];
  static_assert(3 * kSides <= kWarps);
#pragma unroll
  for (unsigned side = 0; side < kSides; ++side) {
    squares[2 * side][threadIdx.x] = tallies[side].squared_error;
    squares[2 * side + 1][threadIdx.x] = tallies[side].squared_values;
    counts[side][threadIdx.x] =
        packed_counts(tallies[side].non_finite, tallies[side].overflowed, tallies[side].flushed);
  }
  __syncthreads();
  const unsigned warp = threadIdx.x / kWarpLanes;
  BlockTally* const parts = partials + kSides * blockIdx.x;
  if (warp < 2 * kSides) {
    const double sum = sum_of_threads(squares[warp]);
    double& to = warp % 2 == 0 ? parts[warp / 2].squared_error : parts[warp / 2].squared_values;
    if (threadIdx.x % kWarpLanes == 0) to = sum;
  } else if (warp < 3 * kSides) {
    const unsigned long long sum = sum_of_threads(counts[warp - 2 * kSides]);
    if (threadIdx.x % kWarpLanes == 0) parts[warp - 2 * kSides].counts = sum;
  }
  __syncthreads();  // thread 0's fence is behind the writes of all
}

/// Where sums of all blocks go.
struct TallyOutputs {
  BlockTally* partials;  // one per block and side
  unsigned* ticket;      // 0 before and after
  std::uint64_t elements;
  formats::Statistics* by_rows;  // null: not wanted
  formats::Statistics* by_columns;
};

/// What the blocks counted, in their order, into both outputs; with one side it is the same for both. All threads call
/// it.
template <class Tally, unsigned kSides>
__device__ __forceinline__ void add_up(const Tally (&tallies)[kSides], const TallyOutputs& outputs) {
  add_up_block(tallies, outputs.partials);
  if (!is_last_block(outputs.ticket)) return;
  for (unsigned side = 0; side < kSides; ++side) {
    formats::Statistics mine{};
#pragma unroll 4
    for (unsigned block = threadIdx.x; block < gridDim.x; block += kThreads) {
      const BlockTally* const part = outputs.partials + kSides * block + side;
      const unsigned long long counts = __ldcg(&part->counts);
      mine.non_finite += counts & kCountMask;
      mine.overflowed += counts >> kCountBits & kCountMask;
      mine.flushed += counts >> 2 * kCountBits;
      mine.squared_error += __ldcg(&part->squared_error);
      mine.squared_values += __ldcg(&part->squared_values);
    }
    const formats::Statistics all{.elements = outputs.elements,
                                  .non_finite = block_sum<kThreads>(mine.non_finite),
                                  .overflowed = block_sum<kThreads>(mine.overflowed),
                                  .flushed = block_sum<kThreads>(mine.flushed),
                                  .squared_error = block_sum<kThreads>(mine.squared_error),
                                  .squared_values = block_sum<kThreads>(mine.squared_values)};
    if (threadIdx.x != 0) continue;
    if (side == 0 && outputs.by_rows != nullptr) *outputs.by_rows = all;
    if (side == kSides - 1 && outputs.by_columns != nullptr) *outputs.by_columns = all;
  }
}

}  // namespace gnmr::kernels
