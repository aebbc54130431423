// SPDX-License-Identifier: Apache-2.0
// `add_error` of row_errors.h.
#include "gnmr/kernels/block_sum.cuh"
#include "gnmr/kernels/cuda_memory.h"
#include "gnmr/kernels/row_judge.cuh"

namespace gnmr::kernels {
namespace {

constexpr unsigned kThreads = kJudges;
constexpr unsigned kWarps = kThreads / kWarpLanes;

template <class Element>
__device__ __forceinline__ float scalar(const MatrixView& matrix, unsigned row, unsigned column) {
  return __uint_as_float(Element::kPerWord == 2
                             ? static_cast<unsigned>(__ldg(address_of<Element>(matrix, row, column))) << 16
                             : static_cast<unsigned>(__ldg(address_of<Element>(matrix, row, column))));
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

}  // namespace

std::size_t add_error_workspace_bytes(std::uint64_t rows) { return rows * sizeof(ComparedRow); }

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

}  // namespace gnmr::kernels
