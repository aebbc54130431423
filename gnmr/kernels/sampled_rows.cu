// SPDX-License-Identifier: Apache-2.0
// `add_sampled_rows` and `add_sampled_outputs` of row_errors.h. These kernels read little, so that what counts is how
// often they wait for the memory: all that a thread reads of a row is on its way at once.
#include "gnmr/kernels/chained_launch.cuh"
#include "gnmr/kernels/column_signs.cuh"
#include "gnmr/kernels/cuda_memory.h"
#include "gnmr/kernels/random_bits.cuh"
#include "gnmr/kernels/row_judge.cuh"

namespace gnmr::kernels {
namespace {

constexpr unsigned kThreads = kJudges;
constexpr unsigned kWarps = kThreads / kWarpLanes;
constexpr unsigned kVectors = kSignVectors;
constexpr unsigned kSampled = kSampledRows;
constexpr double kOwnFactor = 16;  // as the reference has it
constexpr unsigned kBatch = 4;     // vectors of a row that a thread has in flight

static_assert(kSampled == kThreads);

/// Judges a sample, of which each thread has one row; `count` have one.
__device__ void judge_projected(const ProjectedRow& mine, unsigned count, ErrorTotals& totals) {
  const bool has_factor = isfinite(mine.size) && isfinite(mine.high) && mine.low > 0;
  const double own = has_factor ? mine.high / mine.low : 0;
  unsigned factors = 0;
  const double usual = median(count, factors, [&](unsigned) { return has_factor ? key_of(own) : kNoKey; });
  double reference = mine.high / kVectors;
  if (has_factor) reference = mine.size * (own > usual * kOwnFactor || own * kOwnFactor < usual ? own : usual);
  const ComparedRow compared{isfinite(mine.size) ? mine.difference / kVectors : kInfinity, reference};
  judge(
      count, [&](unsigned) { return compared; }, totals);
}

/// Sums of a low row, and of what the high one would be.
struct RowSums {
  double size;
  float low[kVectors];
  float high[kVectors];
};

/// Sums over a block, in thread 0; all threads call it, once.
__device__ __forceinline__ RowSums sum_of_block(RowSums mine) {
  __shared__ RowSums of_warps[kWarps];
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
template <class Element>
__device__ __forceinline__ void add_low(RowSums& sums, const Vector& vector, std::uint64_t seed, unsigned column) {
  const ColumnSigns<Element> signs(seed, column);
#pragma unroll
  for (unsigned e = 0; e < Element::kPerVector; ++e) {
    const float value = Element::value(vector, e);
    sums.size = fma(static_cast<double>(value), static_cast<double>(value), sums.size);
#pragma unroll
    for (unsigned k = 0; k < kVectors; ++k) sums.low[k] = fmaf(value, signs.of[e][k], sums.low[k]);
  }
}

__device__ __forceinline__ ProjectedRow projected_row(double size, const double (&low)[kVectors],
                                                      const double (&high)[kVectors]) {
  ProjectedRow row{size, 0, 0, 0};
#pragma unroll
  for (unsigned k = 0; k < kVectors; ++k) {
    row.low += low[k] * low[k];
    row.high += high[k] * high[k];
    row.difference += (low[k] - high[k]) * (low[k] - high[k]);
  }
  return row;
}

/// Projections of low rows as the blocks leave them for the last one.
struct LowRow {
  double size;
  double low[kVectors];
};

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
  unsigned* ticket;
};

// Rows of a result.

/// A sampled row per block; the last block judges.
template <class Low, class Left, bool kAligned>
__global__ void __launch_bounds__(kThreads, 2)
    sample_rows(MatrixView low, MatrixView left, const float* __restrict__ right_signs, Sample sample,
                ProjectedRow* rows) {
  wait_for_kernels_before();
  const unsigned row = sampled_row(sample.rows_seed, low.rows, kRunOfTokens, blockIdx.x);
  const unsigned rounds = max(rounds_of<Low>(low), rounds_of<Left>(left));
  RowSums sums{};
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
  if (threadIdx.x == 0) {
    double of_low[kVectors];
    double of_high[kVectors];
#pragma unroll
    for (unsigned k = 0; k < kVectors; ++k) {
      of_low[k] = sums.low[k];
      of_high[k] = sums.high[k];
    }
    rows[blockIdx.x] = projected_row(sums.size, of_low, of_high);
  }
  if (!is_last_block(sample.ticket)) return;
  judge_projected(threadIdx.x < sample.count ? read_row(rows, threadIdx.x) : ProjectedRow{}, sample.count,
                  *sample.totals);
}

// Rows of a weight's gradient.

constexpr unsigned kTokensPerBlock = 128;  // that a block adds up for the outputs that are sampled

/// A block's row of the low gradient.
template <class Low, bool kAligned>
__device__ __forceinline__ void sample_low_row(const MatrixView& low, const Sample& sample, LowRow* rows) {
  const unsigned row = sampled_row(sample.rows_seed, low.rows, kRunOfOutputs, blockIdx.x);
  RowSums sums{};
  for (unsigned first = 0; row < low.rows && first < rounds_of<Low>(low); first += kBatch) {
    Vector vectors[kBatch];
#pragma unroll
    for (unsigned i = 0; i < kBatch; ++i) vectors[i] = vector_at<kAligned, Low>(low, row, column_in<Low>(first + i));
#pragma unroll
    for (unsigned i = 0; i < kBatch; ++i) add_low<Low>(sums, vectors[i], sample.signs_seed, column_in<Low>(first + i));
  }
  sums = sum_of_block(sums);
  if (threadIdx.x != 0) return;
  LowRow mine{sums.size, {}};
#pragma unroll
  for (unsigned k = 0; k < kVectors; ++k) mine.low[k] = sums.low[k];
  rows[blockIdx.x] = mine;
}

/// A block's tokens of the gradient, times the input: a thread has a vector of sampled outputs of some of the tokens.
template <class Gradient, bool kAligned>
__device__ __forceinline__ void sample_tokens(const MatrixView& gradient, const float* __restrict__ input_signs,
                                              const Sample& sample, float* partials) {
  constexpr unsigned kPerToken = kSampled / Gradient::kPerVector;  // threads that share a token
  constexpr unsigned kAtOnce = kThreads / kPerToken;               // tokens
  constexpr unsigned kRounds = kTokensPerBlock / kAtOnce;
  __shared__ float of_tokens[kVectors][kTokensPerBlock];
  __shared__ float of_places[kAtOnce][kVectors][kSampled];
  const unsigned block = blockIdx.x - sample.count;
  const unsigned first = block * kTokensPerBlock;
  const unsigned index = threadIdx.x % kPerToken * Gradient::kPerVector;
  const unsigned place = threadIdx.x / kPerToken;
  const unsigned column = sampled_row(sample.rows_seed, gradient.columns, kRunOfOutputs, index);
  for (unsigned i = threadIdx.x; i < kVectors * kTokensPerBlock; i += kThreads) {
    const unsigned token = first + i % kTokensPerBlock;
    const unsigned k = i / kTokensPerBlock;
    of_tokens[k][i % kTokensPerBlock] =
        token < gradient.rows ? __ldg(input_signs + std::size_t{k} * gradient.rows + token) : 0.0f;
  }
  __syncthreads();
  float sums[kVectors][Gradient::kPerVector] = {};
#pragma unroll
  for (unsigned begin = 0; begin < kRounds; begin += 2 * kBatch) {
    Vector vectors[2 * kBatch];
#pragma unroll
    for (unsigned i = 0; i < 2 * kBatch; ++i) {
      const unsigned token = first + (begin + i) * kAtOnce + place;
      vectors[i] = token < gradient.rows ? vector_at<kAligned, Gradient>(gradient, token, column) : Vector{};
    }
#pragma unroll
    for (unsigned i = 0; i < 2 * kBatch; ++i) {
#pragma unroll
      for (unsigned k = 0; k < kVectors; ++k) {
        const float factor = of_tokens[k][(begin + i) * kAtOnce + place];
#pragma unroll
        for (unsigned e = 0; e < Gradient::kPerVector; ++e) {
          sums[k][e] = fmaf(Gradient::value(vectors[i], e), factor, sums[k][e]);
        }
      }
    }
  }
#pragma unroll
  for (unsigned k = 0; k < kVectors; ++k) {
#pragma unroll
    for (unsigned e = 0; e < Gradient::kPerVector; ++e) of_places[place][k][index + e] = sums[k][e];
  }
  __syncthreads();
#pragma unroll
  for (unsigned k = 0; k < kVectors; ++k) {
    float sum = of_places[0][k][threadIdx.x];
#pragma unroll
    for (unsigned other = 1; other < kAtOnce; ++other) sum += of_places[other][k][threadIdx.x];
    partials[(std::size_t{block} * kVectors + k) * kThreads + threadIdx.x] = sum;
  }
  __syncthreads();  // all of it is written before the block counts as done
}

/// The first blocks take a sampled row of the low gradient each, the others some tokens; the last block judges.
template <class Low, class Gradient, bool kAligned>
__global__ void __launch_bounds__(kThreads, 2)
    sample_outputs(MatrixView low, MatrixView gradient, const float* __restrict__ input_signs, Sample sample,
                   LowRow* rows, float* partials) {
  wait_for_kernels_before();
  if (blockIdx.x < sample.count) {
    sample_low_row<Low, kAligned>(low, sample, rows);
  } else {
    sample_tokens<Gradient, kAligned>(gradient, input_signs, sample, partials);
  }
  if (!is_last_block(sample.ticket)) return;
  const unsigned index = threadIdx.x;
  ProjectedRow mine{};
  if (index < sample.count && sampled_row(sample.rows_seed, low.rows, kRunOfOutputs, index) < low.rows) {
    double high[kVectors] = {};
    const unsigned blocks = gridDim.x - sample.count;
#pragma unroll
    for (unsigned k = 0; k < kVectors; ++k) {
#pragma unroll 32
      for (unsigned block = 0; block < blocks; ++block) {
        high[k] += __ldcg(partials + (std::size_t{block} * kVectors + k) * kThreads + index);
      }
    }
    const LowRow of_low = read_row(rows, index);
    mine = projected_row(of_low.size, of_low.low, high);
  }
  judge_projected(mine, sample.count, *sample.totals);
}

unsigned token_blocks(std::uint64_t tokens) { return blocks_for(tokens, kTokensPerBlock); }

/// Calls `launch(low type, other type, whether all rows begin at multiples of 16 bytes)`.
template <class Launch>
void with_alignment(const RowsView& low, const RowsView& other, bool is_aligned, const Launch& launch) {
  with_types(low, other, [&](auto of_low, auto of_other) {
    is_aligned ? launch(of_low, of_other, std::true_type{}) : launch(of_low, of_other, std::false_type{});
  });
}

}  // namespace

std::size_t sampled_rows_workspace_bytes() { return kSampled * sizeof(ProjectedRow); }

std::size_t sampled_outputs_workspace_bytes(std::uint64_t tokens) {
  return kSampled * sizeof(LowRow) + std::size_t{token_blocks(tokens)} * kVectors * kThreads * sizeof(float);
}

void add_sampled_rows(const SampledRows& rows, const TotalsPlace& place, void* workspace, void* stream) {
  check_rows(rows.low);
  check_rows(rows.left);
  const auto count = static_cast<unsigned>(RowSample{0, rows.low.rows, kRunOfTokens}.count());
  if (count == 0) return;
  const MatrixView low = view_of(rows.low);
  const MatrixView left = view_of(rows.left);
  const Sample sample{rows.signs_seed, rows.sample_seed, count, place.totals, place.ticket};
  const bool is_aligned = low.is_aligned && left.is_aligned && is_multiple(rows.right_signs, sizeof(float4));
  const ChainedLaunch launch{.blocks = count, .threads = kThreads, .stream = stream_of(stream)};
  with_alignment(rows.low, rows.left, is_aligned, [&](auto of_low, auto of_left, auto aligned) {
    launch("sample_rows", sample_rows<decltype(of_low), decltype(of_left), aligned.value>, low, left, rows.right_signs,
           sample, static_cast<ProjectedRow*>(workspace));
  });
}

void add_sampled_outputs(const SampledOutputs& outputs, const TotalsPlace& place, void* workspace, void* stream) {
  check_rows(outputs.low);
  check_rows(outputs.gradient);
  const auto count = static_cast<unsigned>(RowSample{0, outputs.low.rows, kRunOfOutputs}.count());
  if (count == 0) return;
  const MatrixView low = view_of(outputs.low);
  const MatrixView gradient = view_of(outputs.gradient);
  const Sample sample{outputs.signs_seed, outputs.sample_seed, count, place.totals, place.ticket};
  auto* const rows = static_cast<LowRow*>(workspace);
  auto* const partials = reinterpret_cast<float*>(rows + kSampled);
  const ChainedLaunch launch{
      .blocks = count + token_blocks(gradient.rows), .threads = kThreads, .stream = stream_of(stream)};
  const bool is_aligned = low.is_aligned && gradient.is_aligned;
  with_alignment(outputs.low, outputs.gradient, is_aligned, [&](auto of_low, auto of_gradient, auto aligned) {
    launch("sample_outputs", sample_outputs<decltype(of_low), decltype(of_gradient), aligned.value>, low, gradient,
           outputs.input_signs, sample, rows, partials);
  });
}

}  // namespace gnmr::kernels
