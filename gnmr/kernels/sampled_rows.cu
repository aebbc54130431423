// SPDX-License-Identifier: Apache-2.0
// Samples of row_errors.h. These kernels read little, so that what counts is how often they wait for the memory: all
// that a thread reads of a row is on its way at once, and the rows of all samples are judged together.
#include "gnmr/kernels/chained_launch.cuh"
#include "gnmr/kernels/column_signs.cuh"
#include "gnmr/kernels/cuda_memory.h"
#include "gnmr/kernels/random_bits.cuh"
#include "gnmr/kernels/row_judge.cuh"

namespace gnmr::kernels {
namespace {

constexpr unsigned kThreads = kJudges;
constexpr unsigned kWarps = kThreads / kWarpLanes;
constexpr unsigned kSampled = kSampledRows;
constexpr unsigned kRun = kRunOfOutputs;
constexpr unsigned kBatch = 4;  // vectors of a row that a thread has in flight

/// What a thread, a warp or a block has of a low row, and of what the high one would be.
template <unsigned kVectors>
struct RowSums {
  double size;
  float low[kVectors];
  float high[kVectors];
};

/// Sums over a block, in thread 0; all threads call it, once.
template <unsigned kVectors>
__device__ __forceinline__ RowSums<kVectors> sum_of_block(RowSums<kVectors> mine) {
  __shared__ RowSums<kVectors> of_warps[kWarps];
  mine.size = warp_sum(mine.size);
#pragma unroll
  for (unsigned k = 0; k < kVectors; ++k) {
    mine.low[k] = warp_sum(mine.low[k]);
    mine.high[k] = warp_sum(mine.high[k]);
  }
  if (threadIdx.x % kWarpLanes == 0) of_warps[threadIdx.x / kWarpLanes] = mine;
  __syncthreads();
  if (threadIdx.x != 0) return mine;
#pragma unroll
  for (unsigned warp = 1; warp < kWarps; ++warp) {
    mine.size += of_warps[warp].size;
#pragma unroll
    for (unsigned k = 0; k < kVectors; ++k) {
      mine.low[k] += of_warps[warp].low[k];
      mine.high[k] += of_warps[warp].high[k];
    }
  }
  return mine;
}

/// A vector of a row that is there. Where `kAligned` holds, rows begin at multiples of 16 bytes.
template <bool kAligned, class Element>
__device__ __forceinline__ Vector vector_at(const MatrixView& matrix, unsigned row, unsigned column) {
  if constexpr (!kAligned) return load_vector<Element>(matrix, row, column);
  return column < matrix.columns ? load_whole<Element>(address_of<Element>(matrix, row, column)) : Vector{};
}

/// Numbers that stand beside a vector of a row of so many columns.
template <bool kAligned, unsigned kCount>
__device__ __forceinline__ void load_beside(float (&to)[kCount], const float* from, unsigned column, unsigned columns) {
  if constexpr (kAligned) {
    const auto* const fours = reinterpret_cast<const float4*>(from + column);
#pragma unroll
    for (unsigned i = 0; i < kCount / 4; ++i) {
      const float4 four = column < columns ? __ldg(fours + i) : float4{};
      to[4 * i] = four.x;
      to[4 * i + 1] = four.y;
      to[4 * i + 2] = four.z;
      to[4 * i + 3] = four.w;
    }
  } else {
#pragma unroll
    for (unsigned i = 0; i < kCount; ++i) to[i] = column + i < columns ? __ldg(from + column + i) : 0.0f;
  }
}

template <class Element>
__device__ __forceinline__ unsigned rounds_of(const MatrixView& matrix) {
  return (matrix.columns + kThreads * Element::kPerVector - 1) / (kThreads * Element::kPerVector);
}

/// The first column of a thread's vector in a round.
template <class Element>
__device__ __forceinline__ unsigned column_in(unsigned round) {
  return (round * kThreads + threadIdx.x) * Element::kPerVector;
}

/// Adds a vector of a low row.
template <class Element, unsigned kVectors>
__device__ __forceinline__ void add_low(RowSums<kVectors>& sums, const Vector& vector, std::uint64_t seed,
                                        unsigned column) {
  const ColumnSigns<Element, kVectors> signs(seed, column);
#pragma unroll
  for (unsigned e = 0; e < Element::kPerVector; ++e) {
    const float value = Element::value(vector, e);
    sums.size = fma(static_cast<double>(value), static_cast<double>(value), sums.size);
#pragma unroll
    for (unsigned k = 0; k < kVectors; ++k) sums.low[k] = fmaf(value, signs.of[e][k], sums.low[k]);
  }
}

/// Which row is sampled, as `RowSample::row`.
__device__ __forceinline__ unsigned sampled_row(std::uint64_t seed, unsigned rows, unsigned run, unsigned index) {
  if (rows <= kSampled) return index;
  const std::uint64_t parts = kSampled / run;
  const std::uint64_t runs = (rows + run - 1) / run;
  const std::uint64_t part = index / run;
  const std::uint64_t first = part * runs / parts;
  const std::uint64_t size = (part + 1) * runs / parts - first;
  return static_cast<unsigned>((first + ((signs_of_64(seed, part) >> 32) * size >> 32)) * run + index % run);
}

/// What both kernels take.
struct Sample {
  std::uint64_t signs_seed;
  std::uint64_t rows_seed;
  unsigned count;  // rows
  ErrorTotals* totals;
  SampleSlot* slot;
};

/// By one thread of a launch.
__device__ __forceinline__ void open_slot(const Sample& sample, unsigned vectors) {
  sample.slot->count = sample.count;
  sample.slot->vectors = vectors;
  sample.slot->totals = sample.totals;
}

// Rows of a result.

/// A sampled row per block.
template <class Low, class Left, bool kAligned>
__global__ void __launch_bounds__(kThreads, 2)
    sample_rows(MatrixView low, MatrixView left, const float* __restrict__ right_signs, Sample sample) {
  constexpr unsigned kVectors = kSignVectors;
  wait_for_kernels_before();
  const unsigned row = sampled_row(sample.rows_seed, low.rows, kRunOfTokens, blockIdx.x);
  const unsigned rounds = max(rounds_of<Low>(low), rounds_of<Left>(left));
  RowSums<kVectors> sums{};
  for (unsigned first = 0; first < rounds; first += kBatch) {
    Vector of_low[kBatch];
    Vector of_left[kBatch];
    float factors[kBatch][kVectors][Left::kPerVector];
#pragma unroll
    for (unsigned i = 0; i < kBatch; ++i) {
      const unsigned column = column_in<Left>(first + i);
      of_low[i] = vector_at<kAligned, Low>(low, row, column_in<Low>(first + i));
      of_left[i] = vector_at<kAligned, Left>(left, row, column);
#pragma unroll
      for (unsigned k = 0; k < kVectors; ++k) {
        load_beside<kAligned>(factors[i][k], right_signs + std::size_t{k} * left.columns, column, left.columns);
      }
    }
#pragma unroll
    for (unsigned i = 0; i < kBatch; ++i) {
      add_low<Low>(sums, of_low[i], sample.signs_seed, column_in<Low>(first + i));
#pragma unroll
      for (unsigned e = 0; e < Left::kPerVector; ++e) {
        const float value = Left::value(of_left[i], e);
#pragma unroll
        for (unsigned k = 0; k < kVectors; ++k) sums.high[k] = fmaf(value, factors[i][k][e], sums.high[k]);
      }
    }
  }
  sums = sum_of_block(sums);
  if (threadIdx.x != 0) return;
  if (blockIdx.x == 0) open_slot(sample, kVectors);
  SampleSlot::Row& to = sample.slot->rows[blockIdx.x];
  to.size = sums.size;
#pragma unroll
  for (unsigned k = 0; k < kVectors; ++k) {
    to.low[k] = sums.low[k];
    to.high[k] = sums.high[k];
  }
}

// Rows of a weight's gradient.

constexpr double kNoRow = -1;              // the size of one behind the last row, where the last run is cut off
constexpr unsigned kTokensPerBlock = 512;  // that a block adds up for a run of outputs
constexpr unsigned kRunSums = kOutputSignVectors * kRun;

/// A block's row of the low gradient.
template <class Low, bool kAligned>
__device__ __forceinline__ void sample_low_row(const MatrixView& low, const Sample& sample) {
  constexpr unsigned kVectors = kOutputSignVectors;
  const unsigned row = sampled_row(sample.rows_seed, low.rows, kRun, blockIdx.x);
  RowSums<kVectors> sums{};
  for (unsigned first = 0; row < low.rows && first < rounds_of<Low>(low); first += kBatch) {
    Vector vectors[kBatch];
#pragma unroll
    for (unsigned i = 0; i < kBatch; ++i) vectors[i] = vector_at<kAligned, Low>(low, row, column_in<Low>(first + i));
#pragma unroll
    for (unsigned i = 0; i < kBatch; ++i) add_low<Low>(sums, vectors[i], sample.signs_seed, column_in<Low>(first + i));
  }
  sums = sum_of_block(sums);
  if (threadIdx.x != 0) return;
  if (blockIdx.x == 0) open_slot(sample, kVectors);
  SampleSlot::Row& to = sample.slot->rows[blockIdx.x];
  to.size = row < low.rows ? sums.size : kNoRow;
#pragma unroll
  for (unsigned k = 0; k < kVectors; ++k) to.low[k] = sums.low[k];
}

/// Sums over the lanes of a warp that differ in bits from `kLowest` on. A lane is left with kCount * kLowest / 32 of
/// the numbers; returns which is the first of them.
template <unsigned kLowest, unsigned kCount, unsigned kDistance = kWarpLanes / 2>
__device__ __forceinline__ unsigned add_over_lanes(float (&numbers)[kCount]) {
  constexpr unsigned kHalf = kCount * kDistance / kWarpLanes;
  const bool is_upper = (threadIdx.x & kDistance) != 0;
#pragma unroll
  for (unsigned i = 0; i < kHalf; ++i) {
    const float other = __shfl_xor_sync(0xffffffffu, is_upper ? numbers[i] : numbers[i + kHalf], kDistance);
    numbers[i] = (is_upper ? numbers[i + kHalf] : numbers[i]) + other;
  }
  unsigned first = is_upper ? kHalf : 0;
  if constexpr (kDistance > kLowest) first += add_over_lanes<kLowest, kCount, kDistance / 2>(numbers);
  return first;
}

/// A block's run of outputs over some tokens of the gradient, times the input. The last block of a run adds up.
template <class Gradient, bool kAligned>
__device__ __forceinline__ void sample_tokens(const MatrixView& gradient, const float* __restrict__ input_signs,
                                              const Sample& sample, unsigned splits, float* partials) {
  constexpr unsigned kVectors = kOutputSignVectors;
  constexpr unsigned kPer = Gradient::kPerVector;
  constexpr unsigned kParts = kRun / kPer;         // threads that share a token
  constexpr unsigned kAtOnce = kThreads / kParts;  // tokens
  constexpr unsigned kRounds = kTokensPerBlock / kAtOnce;
  constexpr unsigned kLeft = kVectors * kPer * kParts / kWarpLanes;
  __shared__ float of_warps[kWarps][kRunSums];  // [vector][output]
  const unsigned run = (blockIdx.x - sample.count) / splits;
  const unsigned split = (blockIdx.x - sample.count) % splits;
  const unsigned part = threadIdx.x % kParts;
  const unsigned column = sampled_row(sample.rows_seed, gradient.columns, kRun, run * kRun) + part * kPer;
  float sums[kVectors * kPer] = {};
#pragma unroll
  for (unsigned round = 0; round < kRounds; round += kBatch) {
    Vector vectors[kBatch];
    float factors[kBatch][kVectors];
#pragma unroll
    for (unsigned i = 0; i < kBatch; ++i) {
      const unsigned token = split * kTokensPerBlock + (round + i) * kAtOnce + threadIdx.x / kParts;
      const bool is_there = token < gradient.rows;
      vectors[i] = is_there ? vector_at<kAligned, Gradient>(gradient, token, column) : Vector{};
#pragma unroll
      for (unsigned k = 0; k < kVectors; ++k) {
        factors[i][k] = is_there ? __ldg(input_signs + std::size_t{k} * gradient.rows + token) : 0.0f;
      }
    }
#pragma unroll
    for (unsigned i = 0; i < kBatch; ++i) {
#pragma unroll
      for (unsigned k = 0; k < kVectors; ++k) {
#pragma unroll
        for (unsigned e = 0; e < kPer; ++e) {
          sums[k * kPer + e] = fmaf(Gradient::value(vectors[i], e), factors[i][k], sums[k * kPer + e]);
        }
      }
    }
  }
  const unsigned first = add_over_lanes<kParts>(sums);
#pragma unroll
  for (unsigned i = 0; i < kLeft; ++i) {
    const unsigned number = first + i;
    of_warps[threadIdx.x / kWarpLanes][number / kPer * kRun + part * kPer + number % kPer] = sums[i];
  }
  __syncthreads();
  float* const of_run = partials + std::size_t{run} * splits * kRunSums;
  const unsigned number = threadIdx.x;
  if (number < kRunSums) {
    float sum = of_warps[0][number];
#pragma unroll
    for (unsigned warp = 1; warp < kWarps; ++warp) sum += of_warps[warp][number];
    of_run[split * kRunSums + number] = sum;
  }
  __syncthreads();  // all of it is written before the block counts as done
  if (!is_last_block(sample.slot->tickets + run, splits) || number >= kRunSums) return;
  float sum = 0;
#pragma unroll 16
  for (unsigned of_split = 0; of_split < splits; ++of_split) sum += __ldcg(of_run + of_split * kRunSums + number);
  sample.slot->rows[run * kRun + number % kRun].high[number / kRun] = sum;
}

/// The first blocks take a sampled row of the low gradient each, the others a run of outputs over some tokens.
template <class Low, class Gradient, bool kAligned>
__global__ void __launch_bounds__(kThreads, 2)
    sample_outputs(MatrixView low, MatrixView gradient, const float* __restrict__ input_signs, Sample sample,
                   unsigned splits, float* partials) {
  wait_for_kernels_before();
  if (blockIdx.x < sample.count) {
    sample_low_row<Low, kAligned>(low, sample);
  } else {
    sample_tokens<Gradient, kAligned>(gradient, input_signs, sample, splits, partials);
  }
}

// Judging.

constexpr double kOwnFactor = 16;  // as the reference has it

static_assert(kSampled == kThreads);

/// What a sampled row's projections come to.
__device__ __forceinline__ ProjectedRow projected_row(const SampleSlot::Row& row, unsigned vectors) {
  if (row.size == kNoRow) return {0, 0, kInfinity, 0};  // nothing is known of it
  ProjectedRow projected{row.size, 0, 0, 0};
  const double share = 1.0 / vectors;
  for (unsigned k = 0; k < vectors; ++k) {
    const double low = row.low[k];
    const double high = row.high[k];
    projected.low += share * low * low;
    projected.high += share * high * high;
    projected.difference += share * (low - high) * (low - high);
  }
  return projected;
}

/// A block judges a slot, a row per thread.
__global__ void __launch_bounds__(kThreads) judge_slots(SampleSlot* slots) {
  wait_for_kernels_before();
  SampleSlot& slot = slots[blockIdx.x];
  const unsigned count = slot.count;
  if (count == 0) return;
  const ProjectedRow mine = threadIdx.x < count ? projected_row(slot.rows[threadIdx.x], slot.vectors) : ProjectedRow{};
  const bool has_factor = isfinite(mine.size) && isfinite(mine.high) && mine.low > 0;
  const double own = has_factor ? mine.high / mine.low : 0;
  unsigned factors = 0;
  const double usual = median(count, factors, [&](unsigned) { return has_factor ? key_of(own) : kNoKey; });
  double reference = mine.high;
  if (has_factor) reference = mine.size * (own > usual * kOwnFactor || own * kOwnFactor < usual ? own : usual);
  const ComparedRow compared{isfinite(mine.size) ? mine.difference : kInfinity, reference};
  judge(
      count, [&](unsigned) { return compared; }, *slot.totals);
  if (threadIdx.x == 0) slot.count = 0;
}

unsigned token_splits(std::uint64_t tokens) { return std::max(1u, blocks_for(tokens, kTokensPerBlock)); }

/// Calls `launch(low type, other type, whether all rows begin at multiples of 16 bytes)`.
template <class Launch>
void with_alignment(const RowsView& low, const RowsView& other, bool is_aligned, const Launch& launch) {
  with_types(low, other, [&](auto of_low, auto of_other) {
    is_aligned ? launch(of_low, of_other, std::true_type{}) : launch(of_low, of_other, std::false_type{});
  });
}

}  // namespace

std::size_t sampled_outputs_workspace_bytes(std::uint64_t tokens) {
  return std::size_t{kSampled / kRun} * token_splits(tokens) * kRunSums * sizeof(float);
}

void add_sampled_rows(const SampledRows& rows, const SamplePlace& place, void* stream) {
  check_rows(rows.low);
  check_rows(rows.left);
  const auto count = static_cast<unsigned>(RowSample{0, rows.low.rows, kRunOfTokens}.count());
  if (count == 0) return;
  const MatrixView low = view_of(rows.low);
  const MatrixView left = view_of(rows.left);
  const Sample sample{rows.signs_seed, rows.sample_seed, count, place.totals, place.slot};
  const bool is_aligned = low.is_aligned && left.is_aligned && is_multiple(rows.right_signs, sizeof(float4));
  const ChainedLaunch launch{.blocks = count, .threads = kThreads, .stream = stream_of(stream)};
  with_alignment(rows.low, rows.left, is_aligned, [&](auto of_low, auto of_left, auto aligned) {
    launch("sample_rows", sample_rows<decltype(of_low), decltype(of_left), aligned.value>, low, left, rows.right_signs,
           sample);
  });
}

void add_sampled_outputs(const SampledOutputs& outputs, const SamplePlace& place, void* workspace, void* stream) {
  check_rows(outputs.low);
  check_rows(outputs.gradient);
  const auto count = static_cast<unsigned>(RowSample{0, outputs.low.rows, kRunOfOutputs}.count());
  if (count == 0) return;
  const MatrixView low = view_of(outputs.low);
  const MatrixView gradient = view_of(outputs.gradient);
  const Sample sample{outputs.signs_seed, outputs.sample_seed, count, place.totals, place.slot};
  const unsigned splits = token_splits(gradient.rows);
  const ChainedLaunch launch{
      .blocks = count + blocks_for(count, kRun) * splits, .threads = kThreads, .stream = stream_of(stream)};
  const bool is_aligned = low.is_aligned && gradient.is_aligned;
  with_alignment(outputs.low, outputs.gradient, is_aligned, [&](auto of_low, auto of_gradient, auto aligned) {
    launch("sample_outputs", sample_outputs<decltype(of_low), decltype(of_gradient), aligned.value>, low, gradient,
           outputs.input_signs, sample, splits, static_cast<float*>(workspace));
  });
}

void judge_samples(SampleSlot* slots, std::uint64_t count, void* stream) {
  if (count == 0) return;
  const ChainedLaunch launch{.blocks = static_cast<unsigned>(count), .threads = kThreads, .stream = stream_of(stream)};
  launch("judge_slots", judge_slots, slots);
}

}  // namespace gnmr::kernels
