// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <type_traits>

#include "gnmr/kernels/block_sum.cuh"
#include "gnmr/kernels/compare.h"
#include "gnmr/kernels/cuda_memory.h"
#include "gnmr/kernels/random_bits.cuh"

namespace gnmr::kernels {
namespace {

// A block takes a chunk, so that sums depend on the number of elements alone. A thread takes groups of elements: 16
// bytes of the wider type, four groups at once.
constexpr unsigned kThreads = 256;
constexpr unsigned kBatch = 4;
constexpr unsigned kRounds = 2;
constexpr unsigned kGroupsPerChunk = kThreads * kBatch * kRounds;
constexpr unsigned kLeastGroup = 4;

// A sum of a few squares in float is good between these, as in the norms.
constexpr float kLeastFloatSum = 0x1p-60f;
constexpr float kMostFloatSum = 0x1p120f;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

using Short = std::uint16_t;  // a bfloat16

template <class Scalar>
constexpr bool kIsShort = std::is_same_v<Scalar, Short>;

/// Elements that a thread takes at a time of two arrays.
template <class Low, class High>
constexpr unsigned kGroup = kIsShort<Low>&& kIsShort<High> ? 8 : 4;

template <unsigned kCount>
struct Values {
  float at[kCount];
};

__device__ __forceinline__ float value_of(float scalar) { return scalar; }
__device__ __forceinline__ float value_of(Short bits) { return __uint_as_float(static_cast<unsigned>(bits) << 16); }

__device__ __forceinline__ void widen(unsigned word, float* to) {
  to[0] = __uint_as_float(word << 16);
  to[1] = __uint_as_float(word & 0xffff0000u);
}

/// A group as it lies in memory, aligned as a whole.
template <class Scalar, unsigned kCount>
using Packed = std::conditional_t<kCount * sizeof(Scalar) == sizeof(uint4), uint4, uint2>;

template <unsigned kCount, class Scalar>
__device__ __forceinline__ Packed<Scalar, kCount> load(const Scalar* data, unsigned group) {
  static_assert(sizeof(Packed<Scalar, kCount>) == kCount * sizeof(Scalar));
  return __ldg(reinterpret_cast<const Packed<Scalar, kCount>*>(data) + group);
}

template <class Scalar, unsigned kCount>
__device__ __forceinline__ Values<kCount> unpacked(const Packed<Scalar, kCount>& words) {
  if constexpr (!kIsShort<Scalar>) {
    return {{__uint_as_float(words.x), __uint_as_float(words.y), __uint_as_float(words.z), __uint_as_float(words.w)}};
  } else {
    Values<kCount> values;
    widen(words.x, values.at);
    widen(words.y, values.at + 2);
    if constexpr (kCount == 8) {
      widen(words.z, values.at + 4);
      widen(words.w, values.at + 6);
    }
    return values;
  }
}

__device__ __forceinline__ double square(float value) { return static_cast<double>(value) * value; }

/// The squares of a group. `kInFloat`: in float where they fit, which is fast, else in double, which says whether one
/// was not finite.
template <bool kInFloat, unsigned kCount>
__device__ __forceinline__ double squares(const Values<kCount>& values) {
  if constexpr (kInFloat) {
    float sum = 0;
#pragma unroll
    for (unsigned i = 0; i < kCount; ++i) sum = fmaf(values.at[i], values.at[i], sum);
    if (sum >= kLeastFloatSum && sum <= kMostFloatSum) return sum;
  }
  double sum = 0;
#pragma unroll
  for (unsigned i = 0; i < kCount; ++i) sum += square(values.at[i]);
  return sum;
}

/// What a comparison sums up.
struct Squares {
  double difference = 0;
  double reference = 0;
};

/// A thread's share of chunk `blockIdx.x` of two arrays.
template <class Low, class High>
__device__ __forceinline__ Squares compare_chunk(const Low* low, const High* high, std::uint64_t count,
                                                 bool is_aligned) {
  constexpr unsigned kCount = kGroup<Low, High>;
  constexpr std::uint64_t kChunk = kGroupsPerChunk * kCount;
  constexpr bool kShort = kCount == 8;
  const std::uint64_t begin = blockIdx.x * kChunk;
  const auto left = static_cast<unsigned>(begin < count ? min(count - begin, kChunk) : 0);
  const unsigned groups = is_aligned ? left / kCount : 0;
  low += begin;
  high += begin;
  Squares sums;
  for (unsigned first = threadIdx.x; first < groups; first += kBatch * kThreads) {
    Packed<Low, kCount> lows[kBatch];
    Packed<High, kCount> highs[kBatch];
#pragma unroll
    for (unsigned i = 0; i < kBatch; ++i) {
      const unsigned group = first + i * kThreads;
      lows[i] = group < groups ? load<kCount>(low, group) : Packed<Low, kCount>{};
      highs[i] = group < groups ? load<kCount>(high, group) : Packed<High, kCount>{};
    }
#pragma unroll
    for (unsigned i = 0; i < kBatch; ++i) {
      if (first + i * kThreads >= groups) continue;
      const Values<kCount> reference = unpacked<High, kCount>(highs[i]);
      Values<kCount> difference = unpacked<Low, kCount>(lows[i]);
#pragma unroll
      for (unsigned k = 0; k < kCount; ++k) difference.at[k] -= reference.at[k];
      sums.reference += squares<kIsShort<High>>(reference);
      sums.difference += squares<kShort>(difference);
    }
  }
  for (unsigned at = groups * kCount + threadIdx.x; at < left; at += kThreads) {
    const float reference = value_of(__ldg(high + at));
    sums.reference += square(reference);
    sums.difference += square(value_of(__ldg(low + at)) - reference);
  }
  return sums;
}

__device__ __forceinline__ void add(double difference, double reference, ErrorTotals& totals) {
  totals.difference += isfinite(difference) ? difference : kInfinity;
  totals.reference += reference;
  totals.measured += 1;
}

/// Sums of blocks in their order, in thread 0; all threads call it.
__device__ __forceinline__ double sum_of_blocks(const double* partials, unsigned stride) {
  double part = 0;
#pragma unroll 4
  for (unsigned block = threadIdx.x; block < gridDim.x; block += kThreads) part += __ldcg(partials + block * stride);
  return block_sum<kThreads>(part);
}

template <class Low, class High>
__global__ void __launch_bounds__(kThreads)
    compare(const Low* __restrict__ low, const High* __restrict__ high, std::uint64_t count, bool is_aligned,
            ErrorTotals* totals, double* partials, unsigned* ticket) {
  const Squares mine = compare_chunk(low, high, count, is_aligned);
  const double difference = block_sum<kThreads>(mine.difference);
  const double reference = block_sum<kThreads>(mine.reference);
  if (threadIdx.x == 0) {
    partials[2 * blockIdx.x] = difference;
    partials[2 * blockIdx.x + 1] = reference;
  }
  if (!is_last_block(ticket)) return;
  const double all_difference = sum_of_blocks(partials, 2);
  const double all_reference = sum_of_blocks(partials + 1, 2);
  if (threadIdx.x == 0 && isfinite(all_reference)) add(all_difference, all_reference, *totals);
}

template <class Scalar>
__global__ void __launch_bounds__(kThreads)
    sum_squares(const Scalar* __restrict__ data, std::uint64_t count, bool is_aligned, double* sum, double* partials,
                unsigned* ticket) {
  constexpr unsigned kCount = kGroup<Scalar, Scalar>;
  constexpr std::uint64_t kChunk = kGroupsPerChunk * kCount;
  const std::uint64_t begin = blockIdx.x * kChunk;
  const auto left = static_cast<unsigned>(begin < count ? min(count - begin, kChunk) : 0);
  const unsigned groups = is_aligned ? left / kCount : 0;
  data += begin;
  double mine = 0;
  Packed<Scalar, kCount> batch[kBatch * kRounds];
#pragma unroll
  for (unsigned i = 0; i < kBatch * kRounds; ++i) {
    const unsigned group = i * kThreads + threadIdx.x;
    batch[i] = group < groups ? load<kCount>(data, group) : Packed<Scalar, kCount>{};
  }
#pragma unroll
  for (unsigned i = 0; i < kBatch * kRounds; ++i) {
    if (i * kThreads + threadIdx.x < groups) mine += squares<kIsShort<Scalar>>(unpacked<Scalar, kCount>(batch[i]));
  }
  for (unsigned at = groups * kCount + threadIdx.x; at < left; at += kThreads) {
    mine += square(value_of(__ldg(data + at)));
  }
  mine = block_sum<kThreads>(mine);
  if (threadIdx.x == 0) partials[blockIdx.x] = mine;
  if (!is_last_block(ticket)) return;
  const double all = sum_of_blocks(partials, 1);
  if (threadIdx.x == 0) *sum += all;
}

constexpr unsigned kProjectionThreads = 512;

/// Squared norms of both projections and of their difference, and what they say together; one block.
__global__ void __launch_bounds__(kProjectionThreads)
    projections(const double* size, const float* __restrict__ low, const float* __restrict__ high, std::uint64_t count,
                double vectors, ErrorTotals* totals) {
  double low_part = 0;
  double high_part = 0;
  double difference_part = 0;
#pragma unroll 4
  for (std::uint64_t i = threadIdx.x; i < count; i += kProjectionThreads) {
    const float of_low = __ldg(low + i);
    const float of_high = __ldg(high + i);
    low_part += square(of_low);
    high_part += square(of_high);
    difference_part += square(of_low - of_high);
  }
  const double low_square = block_sum<kProjectionThreads>(low_part);
  const double high_square = block_sum<kProjectionThreads>(high_part);
  const double difference = block_sum<kProjectionThreads>(difference_part);
  if (threadIdx.x != 0 || !isfinite(high_square)) return;
  const double all = vectors * *size;
  if (!isfinite(all)) return add(all, high_square, *totals);
  // How much longer the high result is than the low one, whose size is known, shows in the projections.
  add(difference, low_square > 0 ? all * (high_square / low_square) : high_square, *totals);
}

template <SignLayout kLayout>
__global__ void __launch_bounds__(kThreads)
    draw_signs(std::uint64_t rows, std::uint64_t columns, std::uint64_t seed, float* signs) {
  const std::uint64_t place = std::uint64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (place >= rows * columns) return;
  const std::uint64_t index = kLayout == SignLayout::by_rows ? place : place % rows * columns + place / rows;
  signs[place] = (signs_of_64(seed, index / 64) >> (index % 64) & 1u) != 0 ? 1.0f : -1.0f;
}

/// A workspace: partial sums, then the ticket.
struct Workspace {
  Workspace(void* memory, unsigned blocks, unsigned sums, cudaStream_t stream)
      : partials(static_cast<double*>(memory)), ticket(reinterpret_cast<unsigned*>(partials + blocks * sums)) {
    check_cuda(cudaMemsetAsync(ticket, 0, sizeof(unsigned), stream), "cudaMemsetAsync");
  }
  double* partials;
  unsigned* ticket;
};

/// Blocks for `count` elements in groups of so many; at least one, which says the result.
unsigned chunks_in(std::uint64_t count, unsigned group) {
  const std::uint64_t chunk = std::uint64_t{kGroupsPerChunk} * group;
  return static_cast<unsigned>(std::max<std::uint64_t>(1, (count + chunk - 1) / chunk));
}

bool is_multiple_of(const void* address, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(address) % bytes == 0;
}

template <class Low, class High>
void launch_compare(const void* low, const void* high, std::uint64_t count, ErrorTotals* totals, void* memory,
                    cudaStream_t stream) {
  constexpr unsigned kCount = kGroup<Low, High>;
  const unsigned blocks = chunks_in(count, kCount);
  const Workspace workspace(memory, blocks, 2, stream);
  const bool is_aligned = is_multiple_of(low, kCount * sizeof(Low)) && is_multiple_of(high, kCount * sizeof(High));
  compare<<<blocks, kThreads, 0, stream>>>(static_cast<const Low*>(low), static_cast<const High*>(high), count,
                                           is_aligned, totals, workspace.partials, workspace.ticket);
  check_launch("compare");
}

template <class Scalar>
void launch_squares(const void* data, std::uint64_t count, double* sum, void* memory, cudaStream_t stream) {
  constexpr unsigned kCount = kGroup<Scalar, Scalar>;
  const unsigned blocks = chunks_in(count, kCount);
  const Workspace workspace(memory, blocks, 1, stream);
  sum_squares<<<blocks, kThreads, 0, stream>>>(static_cast<const Scalar*>(data), count,
                                               is_multiple_of(data, kCount * sizeof(Scalar)), sum, workspace.partials,
                                               workspace.ticket);
  check_launch("sum_squares");
}

}  // namespace

std::size_t compare_workspace_bytes(std::uint64_t count) {
  return std::size_t{chunks_in(count, kLeastGroup)} * 2 * sizeof(double) + sizeof(unsigned);
}

void add_error(const ResultView& low, const ResultView& high, std::uint64_t count, ErrorTotals* totals, void* workspace,
               void* stream) {
  check_result(low, count);
  check_result(high, count);
  const cudaStream_t on = stream_of(stream);
  const bool short_low = low.type == ElementType::bfloat16;
  const bool short_high = high.type == ElementType::bfloat16;
  if (short_low && short_high) {
    launch_compare<Short, Short>(low.data, high.data, count, totals, workspace, on);
  } else if (short_low) {
    launch_compare<Short, float>(low.data, high.data, count, totals, workspace, on);
  } else if (short_high) {
    launch_compare<float, Short>(low.data, high.data, count, totals, workspace, on);
  } else {
    launch_compare<float, float>(low.data, high.data, count, totals, workspace, on);
  }
}

void add_square(const ResultView& matrix, std::uint64_t count, double* sum, void* workspace, void* stream) {
  check_result(matrix, count);
  if (matrix.type == ElementType::bfloat16) {
    launch_squares<Short>(matrix.data, count, sum, workspace, stream_of(stream));
  } else {
    launch_squares<float>(matrix.data, count, sum, workspace, stream_of(stream));
  }
}

void add_projections(const double* size, const float* low, const float* high, std::uint64_t count,
                     std::uint32_t vectors, ErrorTotals* totals, void* stream) {
  check_result({low, ElementType::float32}, count);
  check_result({high, ElementType::float32}, count);
  projections<<<1, kProjectionThreads, 0, stream_of(stream)>>>(size, low, high, count, vectors, totals);
  check_launch("projections");
}

void random_signs(std::uint64_t rows, std::uint64_t columns, std::uint64_t seed, SignLayout layout, float* signs,
                  void* stream) {
  const unsigned blocks = blocks_for(rows * columns, kThreads);
  if (blocks == 0) return;
  if (layout == SignLayout::by_rows) {
    draw_signs<SignLayout::by_rows><<<blocks, kThreads, 0, stream_of(stream)>>>(rows, columns, seed, signs);
  } else {
    draw_signs<SignLayout::by_columns><<<blocks, kThreads, 0, stream_of(stream)>>>(rows, columns, seed, signs);
  }
  check_launch("draw_signs");
}

}  // namespace gnmr::kernels
