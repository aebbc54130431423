// SPDX-License-Identifier: Apache-2.0
// How the last block of a kernel judges rows, and how rows are handed to it. For .cu files of this layer.
//
// Goals: as the reference judges them (row_errors_reference.cpp); medians without sorting. Non-goals: reading matrices.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <limits>

#include "gnmr/kernels/block_sum.cuh"
#include "gnmr/kernels/matrix_vectors.cuh"
#include "gnmr/kernels/row_errors.h"

namespace gnmr::kernels {

constexpr unsigned kJudges = 256;  // threads of a block that judges
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr unsigned kNoKey = 0xffffffffu;

/// The sum over a block, in all threads.
__device__ __forceinline__ unsigned count_in_block(unsigned mine) {
  __shared__ unsigned of_warps[kJudges / kWarpLanes];
  mine = __reduce_add_sync(0xffffffffu, mine);
  __syncthreads();  // the last call's counts have been read
  if (threadIdx.x % kWarpLanes == 0) of_warps[threadIdx.x / kWarpLanes] = mine;
  __syncthreads();
  unsigned sum = 0;
#pragma unroll
  for (unsigned warp = 0; warp < kJudges / kWarpLanes; ++warp) sum += of_warps[warp];
  return sum;
}

/// Numbers from 0 on with 20 bits of their mantissa, in the order of the numbers.
__device__ __forceinline__ unsigned key_of(double value) { return static_cast<unsigned>(__double2hiint(value)); }

/// How many of the keys are below one, over the block.
template <class KeyOf>
__device__ __forceinline__ unsigned count_below(unsigned count, unsigned key, const KeyOf& of) {
  if (count <= kJudges) return __syncthreads_count(threadIdx.x < count && of(threadIdx.x) < key);
  unsigned mine = 0;
  for (unsigned i = threadIdx.x; i < count; i += kJudges) mine += of(i) < key ? 1 : 0;
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
  for (unsigned i = threadIdx.x; i < count; i += kJudges) {
    const ComparedRow row = row_of(i);
    if (!isfinite(row.reference)) continue;
    ++known;
    if (!isfinite(row.difference)) difference = kInfinity;
    if (!(row.reference > 0 || row.difference > 0)) continue;
    ++rows;
    if (!(row.difference > 0)) continue;
    difference += references > 0 ? fmin(row.difference / fmax(row.reference, floor), kMostOfRow) : kInfinity;
  }
  difference = block_sum<kJudges>(difference);
  rows = count_in_block(rows);
  known = count_in_block(known);
  if (threadIdx.x != 0 || known == 0) return;
  totals.difference += difference;
  totals.reference += rows;
  totals.measured += 1;
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

inline MatrixView view_of(const RowsView& matrix) {
  return view_of(matrix.data, matrix.type, matrix.rows, matrix.columns);
}

/// Calls `launch(low type, other type)`.
template <class Launch>
void with_types(const RowsView& low, const RowsView& other, const Launch& launch) {
  const bool is_short = other.type == ElementType::bfloat16;
  if (low.type == ElementType::bfloat16) {
    is_short ? launch(BFloat16{}, BFloat16{}) : launch(BFloat16{}, Float32{});
  } else {
    is_short ? launch(Float32{}, BFloat16{}) : launch(Float32{}, Float32{});
  }
}

}  // namespace gnmr::kernels
