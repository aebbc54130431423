// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <type_traits>

#include "gnmr/kernels/add_square.h"
#include "gnmr/kernels/block_sum.cuh"
#include "gnmr/kernels/cuda_memory.h"

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

using Short = std::uint16_t;  // a bfloat16

template <class Scalar>
constexpr bool kIsShort = std::is_same_v<Scalar, Short>;

/// Elements that a thread takes at a time.
template <class Scalar>
constexpr unsigned kGroup = kIsShort<Scalar> ? 8 : 4;

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

/// Sums of blocks in their order, in thread 0; all threads call it.
__device__ __forceinline__ double sum_of_blocks(const double* partials) {
  double part = 0;
#pragma unroll 4
  for (unsigned block = threadIdx.x; block < gridDim.x; block += kThreads) part += __ldcg(partials + block);
  return block_sum<kThreads>(part);
}

template <class Scalar>
__global__ void __launch_bounds__(kThreads)
    sum_squares(const Scalar* __restrict__ data, std::uint64_t count, bool is_aligned, double* sum, double* partials,
                unsigned* ticket) {
  constexpr unsigned kCount = kGroup<Scalar>;
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
  const double all = sum_of_blocks(partials);
  if (threadIdx.x == 0) *sum += all;
}

/// A workspace: partial sums, then the ticket.
struct Workspace {
  Workspace(void* memory, unsigned blocks, cudaStream_t stream)
      : partials(static_cast<double*>(memory)), ticket(reinterpret_cast<unsigned*>(partials + blocks)) {
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

template <class Scalar>
void launch_squares(const void* data, std::uint64_t count, double* sum, void* memory, cudaStream_t stream) {
  constexpr unsigned kCount = kGroup<Scalar>;
  const unsigned blocks = chunks_in(count, kCount);
  const Workspace workspace(memory, blocks, stream);
  sum_squares<<<blocks, kThreads, 0, stream>>>(static_cast<const Scalar*>(data), count,
                                               is_multiple_of(data, kCount * sizeof(Scalar)), sum, workspace.partials,
                                               workspace.ticket);
  check_launch("sum_squares");
}

}  // namespace

std::size_t add_square_workspace_bytes(std::uint64_t count) {
  return std::size_t{chunks_in(count, kLeastGroup)} * sizeof(double) + sizeof(unsigned);
}

void add_square(const RowsView& matrix, double* sum, void* workspace, void* stream) {
  check_rows(matrix);
  const std::uint64_t count = matrix.rows * matrix.columns;
  if (matrix.type == ElementType::bfloat16) {
    launch_squares<Short>(matrix.data, count, sum, workspace, stream_of(stream));
  } else {
    launch_squares<float>(matrix.data, count, sum, workspace, stream_of(stream));
  }
}

}  // namespace gnmr::kernels
