// SPDX-License-Identifier: Apache-2.0
// `multiply_signs` of row_errors.h.
#include <string>

#include "gnmr/kernels/block_sum.cuh"
#include "gnmr/kernels/chained_launch.cuh"
#include "gnmr/kernels/column_signs.cuh"
#include "gnmr/kernels/cuda_memory.h"
#include "gnmr/kernels/matrix_vectors.cuh"
#include "gnmr/kernels/row_errors.h"
#include "gnmr/kernels/sign_tiles.cuh"

namespace gnmr::kernels {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kWarps = kThreads / kWarpLanes;

// A block has 256 rows of a strip of columns, 512 bytes wide: bfloat16 on tensor cores, what they do not take below.

constexpr unsigned kPartRows = 256;

template <class Element>
constexpr unsigned kStrip = kWarpLanes* Element::kPerVector;

unsigned strips_in(const RowsView& matrix) {
  return blocks_for(matrix.columns, matrix.type == ElementType::bfloat16 ? kStrip<BFloat16> : kStrip<Float32>);
}
unsigned parts_in(const RowsView& matrix) { return blocks_for(matrix.rows, kPartRows); }

/// Sums of 16 numbers over a warp; afterwards lanes 2 i and 2 i + 1 have that of number i.
__device__ __forceinline__ float sum_of_lanes(float (&numbers)[16]) {
#pragma unroll
  for (unsigned distance = 16, half = 8; half > 0; distance /= 2, half /= 2) {
    const bool is_upper = (threadIdx.x & distance) != 0;
#pragma unroll
    for (unsigned i = 0; i < half; ++i) {
      const float other = __shfl_xor_sync(0xffffffffu, is_upper ? numbers[i] : numbers[i + half], distance);
      numbers[i] = (is_upper ? numbers[i + half] : numbers[i]) + other;
    }
  }
  return numbers[0] + __shfl_xor_sync(0xffffffffu, numbers[0], 1);
}

/// Partial sums: of rows per strip, of columns per part.
template <class Element, unsigned kVectors, bool kRows, bool kColumns>
__global__ void __launch_bounds__(kThreads)
    add_strips(MatrixView matrix, std::uint64_t columns_seed, std::uint64_t rows_seed, unsigned strips,
               float* __restrict__ of_rows, float* __restrict__ of_columns) {
  wait_for_kernels_before();
  __shared__ float of_warps[kColumns ? kWarps : 1][kVectors][kColumns ? kStrip<Element> : 1];
  constexpr unsigned kBatch = 16 / kVectors;  // vectors of 16 bytes that a lane has in flight
  const unsigned strip = blockIdx.x % strips;
  const unsigned part = blockIdx.x / strips;
  const unsigned warp = threadIdx.x / kWarpLanes;
  const unsigned lane = threadIdx.x % kWarpLanes;
  const unsigned column = strip * kStrip<Element> + lane * Element::kPerVector;
  const unsigned last = min((part + 1) * kPartRows, matrix.rows);
  const ColumnSigns<Element, kVectors> column_signs(columns_seed, column);
  float sums[kVectors][Element::kPerVector] = {};
  for (unsigned begin = part * kPartRows; begin < last; begin += kBatch * kWarps) {
    Vector batch[kBatch];
#pragma unroll
    for (unsigned i = 0; i < kBatch; ++i) {
      const unsigned row = begin + i * kWarps + warp;
      batch[i] = row < last ? load_vector<Element>(matrix, row, column) : Vector{};
    }
    float dots[kBatch * kVectors] = {};
#pragma unroll
    for (unsigned i = 0; i < kBatch; ++i) {
      const unsigned row = begin + i * kWarps + warp;
      float row_signs[kVectors];
      if (kColumns) {
        const auto bits = static_cast<unsigned>(signs_of_64(rows_seed, kVectors * row / 64) >> (kVectors * row % 64));
#pragma unroll
        for (unsigned k = 0; k < kVectors; ++k) row_signs[k] = (bits >> k & 1u) != 0 ? 1.0f : -1.0f;
      }
#pragma unroll
      for (unsigned e = 0; e < Element::kPerVector; ++e) {
        const float value = Element::value(batch[i], e);
#pragma unroll
        for (unsigned k = 0; k < kVectors; ++k) {
          if (kRows) dots[i * kVectors + k] = fmaf(value, column_signs.of[e][k], dots[i * kVectors + k]);
          if (kColumns) sums[k][e] = fmaf(value, row_signs[k], sums[k][e]);
        }
      }
    }
    if (kRows) {
      const float sum = sum_of_lanes(dots);
      const unsigned number = lane / 2;
      const unsigned row = begin + number / kVectors * kWarps + warp;
      if (lane % 2 == 0 && row < last) {
        of_rows[(std::size_t{strip} * kVectors + number % kVectors) * matrix.rows + row] = sum;
      }
    }
  }
  if constexpr (kColumns) {
#pragma unroll
    for (unsigned k = 0; k < kVectors; ++k) {
#pragma unroll
      for (unsigned e = 0; e < Element::kPerVector; ++e) of_warps[warp][k][lane * Element::kPerVector + e] = sums[k][e];
    }
    __syncthreads();
    for (unsigned i = threadIdx.x; i < kVectors * kStrip<Element>; i += kThreads) {
      const unsigned k = i / kStrip<Element>;
      const unsigned at = strip * kStrip<Element> + i % kStrip<Element>;
      if (at >= matrix.columns) continue;
      float sum = of_warps[0][k][i % kStrip<Element>];
#pragma unroll
      for (unsigned other = 1; other < kWarps; ++other) sum += of_warps[other][k][i % kStrip<Element>];
      of_columns[(std::size_t{part} * kVectors + k) * matrix.columns + at] = sum;
    }
  }
}

/// Partial sums of one kind, and where their sums go.
struct Partials {
  const float* from;
  float* to;
  unsigned parts;
  unsigned count;  // 0: not wanted
};

__global__ void __launch_bounds__(kThreads) add_partials(Partials rows, Partials columns) {
  wait_for_kernels_before();
  const unsigned number = blockIdx.x * kThreads + threadIdx.x;
  if (number >= rows.count + columns.count) return;
  const bool is_row = number < rows.count;
  const unsigned index = is_row ? number : number - rows.count;
  const unsigned parts = is_row ? rows.parts : columns.parts;
  const std::size_t stride = is_row ? rows.count : columns.count;
  const float* const from = (is_row ? rows.from : columns.from) + index;
  float sum = 0;
#pragma unroll 16
  for (unsigned part = 0; part < parts; ++part) sum += __ldg(from + part * stride);
  (is_row ? rows.to : columns.to)[index] = sum;
}

/// What a launch takes besides the kinds of sums that are wanted.
struct PartialSums {
  const RowsView& matrix;
  const SignProducts& products;
  float* of_rows;
  float* of_columns;
  cudaStream_t stream;
};

template <unsigned kVectors, bool kRows, bool kColumns>
void add_partial_sums(const PartialSums& to) {
  const unsigned strips = strips_in(to.matrix);
  const unsigned blocks = strips * parts_in(to.matrix);
  const MatrixView view = view_of(to.matrix.data, to.matrix.type, to.matrix.rows, to.matrix.columns);
  const auto run = [&](const char* name, auto kernel, unsigned threads, unsigned shared_bytes) {
    const ChainedLaunch launch{.blocks = blocks, .threads = threads, .stream = to.stream, .shared_bytes = shared_bytes};
    launch(name, kernel, view, to.products.by_columns_seed, to.products.by_rows_seed, strips, to.of_rows,
           to.of_columns);
  };
  if (to.matrix.type == ElementType::float32) {
    run("add_strips", add_strips<Float32, kVectors, kRows, kColumns>, kThreads, 0);
  } else if (!view.is_aligned) {
    run("add_strips", add_strips<BFloat16, kVectors, kRows, kColumns>, kThreads, 0);
  } else {
    const auto kernel = add_tiles<kVectors, kPartRows, kRows, kColumns>;
    check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kTileSharedBytes),
               "add_tiles");
    run("add_tiles", kernel, kTileThreads, kTileSharedBytes);
  }
}

}  // namespace

std::size_t multiply_signs_workspace_bytes(const RowsView& matrix, std::uint64_t vectors) {
  const std::uint64_t rows = std::uint64_t{strips_in(matrix)} * matrix.rows;
  const std::uint64_t columns = std::uint64_t{parts_in(matrix)} * matrix.columns;
  return (rows + columns) * vectors * sizeof(float);
}

void multiply_signs(const RowsView& matrix, const SignProducts& products, void* workspace, void* stream) {
  check_rows(matrix);
  const std::uint64_t vectors = products.vectors;
  const bool has_many = vectors == kOutputSignVectors;
  if (!has_many && vectors != kSignVectors) {
    throw Error("[multiply_signs] expected 2 or 4 vectors, got " + std::to_string(vectors));
  }
  if (has_many && products.of_columns != nullptr) {
    throw Error("[multiply_signs] expected no products of columns with 4 vectors");
  }
  const cudaStream_t on = stream_of(stream);
  const auto wanted = [&](const float* to, std::uint64_t count) {
    return to != nullptr ? static_cast<unsigned>(vectors * count) : 0u;
  };
  const unsigned strips = strips_in(matrix);
  const unsigned parts = parts_in(matrix);
  auto* const of_rows = static_cast<float*>(workspace);
  auto* const of_columns = of_rows + std::size_t{strips} * vectors * matrix.rows;
  const Partials rows{of_rows, products.of_rows, strips, wanted(products.of_rows, matrix.rows)};
  const Partials columns{of_columns, products.of_columns, parts, wanted(products.of_columns, matrix.columns)};
  const std::uint64_t count = std::uint64_t{rows.count} + columns.count;
  if (count == 0) return;
  if (strips * parts > 0) {
    const PartialSums to{matrix, products, of_rows, of_columns, on};
    if (has_many) {
      add_partial_sums<kOutputSignVectors, true, false>(to);
    } else if (rows.count > 0 && columns.count > 0) {
      add_partial_sums<kSignVectors, true, true>(to);
    } else if (rows.count > 0) {
      add_partial_sums<kSignVectors, true, false>(to);
    } else {
      add_partial_sums<kSignVectors, false, true>(to);
    }
  }
  const ChainedLaunch launch{.blocks = blocks_for(count, kThreads), .threads = kThreads, .stream = on};
  launch("add_partials", add_partials, rows, columns);
}

}  // namespace gnmr::kernels
