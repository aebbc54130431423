// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "gnmr/kernels/block_sum.cuh"
#include "gnmr/kernels/column_signs.cuh"
#include "gnmr/kernels/cuda_memory.h"
#include "gnmr/kernels/matrix_vectors.cuh"
#include "gnmr/kernels/random_bits.cuh"
#include "gnmr/kernels/row_errors.h"

namespace gnmr::kernels {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kWarps = kThreads / kWarpLanes;
constexpr unsigned kVectors = kSignVectors;
constexpr unsigned kSampled = kSampledRows;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kOwnFactor = 16;  // as the reference has it
constexpr unsigned kNoKey = 0xffffffffu;

static_assert(kSampled == kThreads);

// Medians and shares, in one block.

/// The sum over a block, in all threads.
__device__ __forceinline__ unsigned count_in_block(unsigned mine) {
  __shared__ unsigned of_warps[kWarps];
  mine = __reduce_add_sync(0xffffffffu, mine);
  __syncthreads();  // the last call's counts have been read
  if (threadIdx.x % kWarpLanes == 0) of_warps[threadIdx.x / kWarpLanes] = mine;
  __syncthreads();
  unsigned sum = 0;
#pragma unroll
  for (unsigned warp = 0; warp < kWarps; ++warp) sum += of_warps[warp];
  return sum;
}

/// Numbers from 0 on with 20 bits of their mantissa, in the order of the numbers.
__device__ __forceinline__ unsigned key_of(double value) { return static_cast<unsigned>(__double2hiint(value)); }

/// How many of the keys are below one, over the block.
template <class KeyOf>
__device__ __forceinline__ unsigned count_below(unsigned count, unsigned key, const KeyOf& of) {
  if (count <= kThreads) return __syncthreads_count(threadIdx.x < count && of(threadIdx.x) < key);
  unsigned mine = 0;
  for (unsigned i = threadIdx.x; i < count; i += kThreads) mine += of(i) < key ? 1 : 0;
  return count_in_block(mine);
}

/// The lower median of the keys that are there; 0 of none. All threads call it, and have it.
template <class KeyOf>
__device__ double median(unsigned count, unsigned& known, const KeyOf& of) {
  known = count_below(count, kNoKey, of);
  if (known == 0) return 0;
  const unsigned middle = (known - 1) / 2;
  unsigned key = 0;
  // The largest key with no more than so many below it.
  for (unsigned bit = 1u << 30; bit != 0; bit >>= 1) {
    if (count_below(count, key | bit, of) <= middle) key |= bit;
  }
  return __hiloint2double(static_cast<int>(key), 0);
}

/// Adds rows to totals; `row_of(i)` is called several times.
template <class RowOf>
__device__ void judge(unsigned count, const RowOf& row_of, ErrorTotals& totals) {
  unsigned references = 0;
  const double floor = median(count, references, [&](unsigned i) {
    const ComparedRow row = row_of(i);
    return isfinite(row.reference) && row.reference > 0 ? key_of(row.reference) : kNoKey;
  });
  double difference = 0;
  unsigned rows = 0;
  unsigned known = 0;
  for (unsigned i = threadIdx.x; i < count; i += kThreads) {
    const ComparedRow row = row_of(i);
    if (!isfinite(row.reference)) continue;
    ++known;
    if (!isfinite(row.difference)) difference = kInfinity;
    if (!(row.reference > 0 || row.difference > 0)) continue;
    ++rows;
    if (!(row.difference > 0)) continue;
    difference += references > 0 ? fmin(row.difference / fmax(row.reference, floor), kMostOfRow) : kInfinity;
  }
  difference = block_sum<kThreads>(difference);
  rows = count_in_block(rows);
  known = count_in_block(known);
  if (threadIdx.x != 0 || known == 0) return;
  totals.difference += difference;
  totals.reference += rows;
  totals.measured += 1;
}

/// The same for a sample, of which each thread has one row; `count` have one.
__device__ void judge_projected(const ProjectedRow& mine, unsigned count, ErrorTotals& totals) {
  __shared__ ComparedRow compared[kSampled];
  const unsigned index = threadIdx.x;
  const bool has_factor = isfinite(mine.size) && isfinite(mine.high) && mine.low > 0;
  const double own = has_factor ? mine.high / mine.low : 0;
  unsigned factors = 0;
  const double usual = median(count, factors, [&](unsigned) { return has_factor ? key_of(own) : kNoKey; });
  double reference = mine.high / kVectors;
  if (has_factor) reference = mine.size * (own > usual * kOwnFactor || own * kOwnFactor < usual ? own : usual);
  compared[index] = {isfinite(mine.size) ? mine.difference / kVectors : kInfinity, reference};
  __syncthreads();
  judge(
      count, [&](unsigned i) { return compared[i]; }, totals);
}

// A row of a low result, by a block.

/// A low row's share of its norm and projections that this thread has.
struct LowPart {
  double size = 0;
  float projected[kVectors] = {};
};

template <class Element>
__device__ LowPart low_part(const MatrixView& low, unsigned row, std::uint64_t seed) {
  LowPart part;
#pragma unroll 2
  for (unsigned column = threadIdx.x * Element::kPerVector; column < low.columns;
       column += kThreads * Element::kPerVector) {
    const Vector vector = load_vector<Element>(low, row, column);
    const ColumnSigns<Element> signs(seed, column);
#pragma unroll
    for (unsigned e = 0; e < Element::kPerVector; ++e) {
      const float value = Element::value(vector, e);
      part.size = fma(static_cast<double>(value), static_cast<double>(value), part.size);
#pragma unroll
      for (unsigned k = 0; k < kVectors; ++k) part.projected[k] = fmaf(value, signs.of[e][k], part.projected[k]);
    }
  }
  return part;
}

/// Sums of a low row over a block, in thread 0: its size, its projections.
__device__ __forceinline__ LowPart low_sums(LowPart part) {
  part.size = block_sum<kThreads>(part.size);
#pragma unroll
  for (unsigned k = 0; k < kVectors; ++k) part.projected[k] = block_sum<kThreads>(part.projected[k]);
  return part;
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

/// Projections of rows as the blocks leave them for the last one.
struct LowRow {
  double size;
  double low[kVectors];
};

__device__ __forceinline__ LowRow low_row(const LowPart& sums) {
  LowRow row{sums.size, {}};
#pragma unroll
  for (unsigned k = 0; k < kVectors; ++k) row.low[k] = sums.projected[k];
  return row;
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

/// A row of a block's own, past L1: other blocks wrote it.
template <class Row>
__device__ __forceinline__ Row read_row(const Row* rows, unsigned index) {
  static_assert(sizeof(Row) % sizeof(double) == 0);
  Row row;
  const auto* const from = reinterpret_cast<const double*>(rows + index);
  auto* const to = reinterpret_cast<double*>(&row);
#pragma unroll
  for (unsigned i = 0; i < sizeof(Row) / sizeof(double); ++i) to[i] = __ldcg(from + i);
  return row;
}

// Kernels.

/// A sampled row per block; the last block judges.
template <class Low, class Left>
__global__ void __launch_bounds__(kThreads)
    sample_rows(MatrixView low, MatrixView left, const float* __restrict__ right_signs, std::uint64_t signs_seed,
                std::uint64_t sample_seed, ProjectedRow* rows, ErrorTotals* totals, unsigned* ticket) {
  const unsigned row = sampled_row(sample_seed, low.rows, kRunOfTokens, blockIdx.x);
  float high[kVectors] = {};
#pragma unroll 2
  for (unsigned column = threadIdx.x * Left::kPerVector; column < left.columns; column += kThreads * Left::kPerVector) {
    const Vector vector = load_vector<Left>(left, row, column);
#pragma unroll
    for (unsigned e = 0; e < Left::kPerVector; ++e) {
      const float value = Left::value(vector, e);
#pragma unroll
      for (unsigned k = 0; k < kVectors; ++k) {
        const float factor =
            column + e < left.columns ? __ldg(right_signs + std::size_t{k} * left.columns + column + e) : 0.0f;
        high[k] = fmaf(value, factor, high[k]);
      }
    }
  }
  const LowRow mine = low_row(low_sums(low_part<Low>(low, row, signs_seed)));
  double of_high[kVectors];
#pragma unroll
  for (unsigned k = 0; k < kVectors; ++k) of_high[k] = block_sum<kThreads>(high[k]);
  if (threadIdx.x == 0) rows[blockIdx.x] = projected_row(mine.size, mine.low, of_high);
  if (!is_last_block(ticket)) return;
  const ProjectedRow row_of_thread = threadIdx.x < gridDim.x ? read_row(rows, threadIdx.x) : ProjectedRow{};
  judge_projected(row_of_thread, gridDim.x, *totals);
}

/// Tokens that a block adds up for the columns of the gradient that are sampled.
constexpr unsigned kTokensPerBlock = 64;

template <class Element>
__device__ __forceinline__ float scalar(const MatrixView& matrix, unsigned row, unsigned column) {
  return __uint_as_float(Element::kPerWord == 2
                             ? static_cast<unsigned>(__ldg(address_of<Element>(matrix, row, column))) << 16
                             : static_cast<unsigned>(__ldg(address_of<Element>(matrix, row, column))));
}

/// The first blocks take a sampled row of the low gradient each, the others some tokens; the last block judges.
template <class Low, class Gradient>
__global__ void __launch_bounds__(kThreads)
    sample_outputs(MatrixView low, MatrixView gradient, const float* __restrict__ input_signs, std::uint64_t signs_seed,
                   std::uint64_t sample_seed, unsigned count, LowRow* rows, float* partials, ErrorTotals* totals,
                   unsigned* ticket) {
  const unsigned index = threadIdx.x;
  const unsigned output = sampled_row(sample_seed, low.rows, kRunOfOutputs, index);
  const bool is_there = index < count && output < low.rows;
  if (blockIdx.x < count) {
    const unsigned row = sampled_row(sample_seed, low.rows, kRunOfOutputs, blockIdx.x);
    const LowPart part = row < low.rows ? low_part<Low>(low, row, signs_seed) : LowPart{};
    const LowRow mine = low_row(low_sums(part));
    if (index == 0) rows[blockIdx.x] = mine;
  } else {
    const unsigned first = (blockIdx.x - count) * kTokensPerBlock;
    const unsigned last = min(first + kTokensPerBlock, gradient.rows);
    float sums[kVectors] = {};
    if (is_there) {
#pragma unroll 8
      for (unsigned token = first; token < last; ++token) {
        const float value = scalar<Gradient>(gradient, token, output);
#pragma unroll
        for (unsigned k = 0; k < kVectors; ++k) {
          sums[k] = fmaf(value, __ldg(input_signs + std::size_t{k} * gradient.rows + token), sums[k]);
        }
      }
    }
#pragma unroll
    for (unsigned k = 0; k < kVectors; ++k) {
      partials[(std::size_t{blockIdx.x - count} * kVectors + k) * kThreads + index] = sums[k];
    }
    __syncthreads();
  }
  if (!is_last_block(ticket)) return;
  ProjectedRow mine{};
  if (is_there) {
    double high[kVectors] = {};
    for (unsigned k = 0; k < kVectors; ++k) {
#pragma unroll 8
      for (unsigned block = 0; block < gridDim.x - count; ++block) {
        high[k] += __ldcg(partials + (std::size_t{block} * kVectors + k) * kThreads + index);
      }
    }
    const LowRow of_low = read_row(rows, index);
    mine = projected_row(of_low.size, of_low.low, high);
  }
  judge_projected(mine, count, *totals);
}

/// A warp per row; the last block judges.
template <class Low, class High>
__global__ void __launch_bounds__(kThreads)
    compare_rows(MatrixView low, MatrixView high, ComparedRow* rows, ErrorTotals* totals, unsigned* ticket) {
  // As many elements of both at a time as the wider type has in a vector.
  constexpr unsigned kCount = Low::kPerVector == High::kPerVector ? Low::kPerVector : Float32::kPerVector;
  const unsigned row = blockIdx.x * kWarps + threadIdx.x / kWarpLanes;
  double difference = 0;
  double reference = 0;
  if (row < high.rows) {
#pragma unroll 4
    for (unsigned column = threadIdx.x % kWarpLanes * kCount; column < high.columns; column += kWarpLanes * kCount) {
      float of_low[kCount];
      float of_high[kCount];
      if constexpr (Low::kPerVector == High::kPerVector) {
        const Vector lows = load_vector<Low>(low, row, column);
        const Vector highs = load_vector<High>(high, row, column);
#pragma unroll
        for (unsigned e = 0; e < kCount; ++e) {
          of_low[e] = Low::value(lows, e);
          of_high[e] = High::value(highs, e);
        }
      } else {
#pragma unroll
        for (unsigned e = 0; e < kCount; ++e) {
          const bool is_inside = column + e < high.columns;
          of_low[e] = is_inside ? scalar<Low>(low, row, column + e) : 0.0f;
          of_high[e] = is_inside ? scalar<High>(high, row, column + e) : 0.0f;
        }
      }
#pragma unroll
      for (unsigned e = 0; e < kCount; ++e) {
        const double apart = of_low[e] - of_high[e];
        const double value = of_high[e];
        difference = fma(apart, apart, difference);
        reference = fma(value, value, reference);
      }
    }
    difference = warp_sum(difference);
    reference = warp_sum(reference);
    if (threadIdx.x % kWarpLanes == 0) rows[row] = {difference, reference};
  }
  __syncthreads();
  if (!is_last_block(ticket)) return;
  judge(
      high.rows, [&](unsigned i) { return read_row(rows, i); }, *totals);
}

MatrixView view_of(const RowsView& matrix) { return view_of(matrix.data, matrix.type, matrix.rows, matrix.columns); }

bool is_short(const RowsView& matrix) { return matrix.type == ElementType::bfloat16; }

/// Calls `launch(low type, other type)`.
template <class Launch>
void with_types(const RowsView& low, const RowsView& other, const Launch& launch) {
  if (is_short(low)) {
    is_short(other) ? launch(BFloat16{}, BFloat16{}) : launch(BFloat16{}, Float32{});
  } else {
    is_short(other) ? launch(Float32{}, BFloat16{}) : launch(Float32{}, Float32{});
  }
}

unsigned token_blocks(std::uint64_t tokens) { return blocks_for(tokens, kTokensPerBlock); }

}  // namespace

std::size_t add_error_workspace_bytes(std::uint64_t rows) { return rows * sizeof(ComparedRow); }

std::size_t sampled_rows_workspace_bytes() { return kSampled * sizeof(ProjectedRow); }

std::size_t sampled_outputs_workspace_bytes(std::uint64_t tokens) {
  return kSampled * sizeof(LowRow) + std::size_t{token_blocks(tokens)} * kVectors * kThreads * sizeof(float);
}

void add_error(const RowsView& low, const RowsView& high, const TotalsPlace& place, void* workspace, void* stream) {
  check_rows(low);
  check_rows(high);
  if (high.rows == 0) return;
  auto* const rows = static_cast<ComparedRow*>(workspace);
  const unsigned blocks = blocks_for(high.rows, kWarps);
  with_types(low, high, [&](auto of_low, auto of_high) {
    compare_rows<decltype(of_low), decltype(of_high)>
        <<<blocks, kThreads, 0, stream_of(stream)>>>(view_of(low), view_of(high), rows, place.totals, place.ticket);
  });
  check_launch("compare_rows");
}

void add_sampled_rows(const SampledRows& rows, const TotalsPlace& place, void* workspace, void* stream) {
  check_rows(rows.low);
  check_rows(rows.left);
  const auto count = static_cast<unsigned>(RowSample{0, rows.low.rows, kRunOfTokens}.count());
  if (count == 0) return;
  with_types(rows.low, rows.left, [&](auto low, auto left) {
    sample_rows<decltype(low), decltype(left)><<<count, kThreads, 0, stream_of(stream)>>>(
        view_of(rows.low), view_of(rows.left), rows.right_signs, rows.signs_seed, rows.sample_seed,
        static_cast<ProjectedRow*>(workspace), place.totals, place.ticket);
  });
  check_launch("sample_rows");
}

void add_sampled_outputs(const SampledOutputs& outputs, const TotalsPlace& place, void* workspace, void* stream) {
  check_rows(outputs.low);
  check_rows(outputs.gradient);
  const auto count = static_cast<unsigned>(RowSample{0, outputs.low.rows, kRunOfOutputs}.count());
  if (count == 0) return;
  const unsigned blocks = count + token_blocks(outputs.gradient.rows);
  auto* const rows = static_cast<LowRow*>(workspace);
  auto* const partials = reinterpret_cast<float*>(rows + kSampled);
  with_types(outputs.low, outputs.gradient, [&](auto low, auto gradient) {
    sample_outputs<decltype(low), decltype(gradient)><<<blocks, kThreads, 0, stream_of(stream)>>>(
        view_of(outputs.low), view_of(outputs.gradient), outputs.input_signs, outputs.signs_seed, outputs.sample_seed,
        count, rows, partials, place.totals, place.ticket);
  });
  check_launch("sample_outputs");
}

}  // namespace gnmr::kernels
