// SPDX-License-Identifier: Apache-2.0
// Products of a bfloat16 matrix with vectors of signs on tensor cores: a sign is exact there, and sums are float32. For
// sign_products.cu.
//
// Goals: as fast as the memory is read; up to eight vectors cost what one costs; partial sums as `add_strips` leaves
// them. Non-goals: rows that do not begin at multiples of 16 bytes.
//
// A warp has 16 rows of a strip of 256 columns at a time, in shared memory. Each 16 x 16 tile of them is read from
// there twice: as it is for the sums of rows, transposed for those of columns. Element numbers in fragments are those
// of mma.m16n8k16: g = lane / 4 and t = lane % 4.
#pragma once

#include <cuda_pipeline_primitives.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "gnmr/kernels/block_sum.cuh"
#include "gnmr/kernels/chained_launch.cuh"
#include "gnmr/kernels/matrix_vectors.cuh"
#include "gnmr/kernels/random_bits.cuh"

namespace gnmr::kernels {

constexpr unsigned kTile = 16;
constexpr unsigned kTileWarps = 4;
constexpr unsigned kTileThreads = kTileWarps * kWarpLanes;
constexpr unsigned kTileStages = 2;
constexpr unsigned kStripVectors = 32;  // vectors of 16 bytes in a row of a strip: a warp loads a row at a time
constexpr unsigned kStripTiles = kStripVectors * BFloat16::kPerVector / kTile;
constexpr unsigned kStageBytes = kTile * kStripVectors * sizeof(Vector);
constexpr unsigned kTileSharedBytes = kTileWarps * kTileStages * kStageBytes;

/// Two signs as bfloat16; 1 bits are plus.
__device__ __forceinline__ unsigned pair_of_signs(unsigned first, unsigned second) {
  return 0xbf80bf80u ^ (first & 1u) << 15 ^ (second & 1u) << 31;
}

/// The signs of 16 rows or columns, as the right operand of a tile.
struct SignFragment {
  unsigned words[2];
};

/// The signs of 256 rows or columns, spread over a warp: a lane has 64 bits of them.
template <unsigned kVectors>
class WarpSigns {
 public:
  /// From a multiple of 256 on.
  __device__ __forceinline__ WarpSigns(std::uint64_t seed, unsigned first)
      : bits_(signs_of_64(seed, kVectors * first / 64 + threadIdx.x % kWarpLanes)) {}

  /// Those of a tile; all lanes call it.
  __device__ __forceinline__ SignFragment of_tile(unsigned tile) const {
    const unsigned vector = threadIdx.x % kWarpLanes / 4;
    SignFragment fragment;
#pragma unroll
    for (unsigned half = 0; half < 2; ++half) {
      const unsigned first = kVectors * (kTile * tile + kTile / 2 * half);
      const std::uint64_t bits = __shfl_sync(0xffffffffu, bits_, static_cast<int>(first / 64));
      const auto of_lane =
          static_cast<unsigned>(bits >> (first % 64 + kVectors * 2 * (threadIdx.x % 4) + vector % kVectors));
      fragment.words[half] = vector < kVectors ? pair_of_signs(of_lane, of_lane >> kVectors) : 0u;
    }
    return fragment;
  }

 private:
  static_assert(kVectors <= 8 && 8 % kVectors == 0);
  std::uint64_t bits_;
};

/// sums += tile x signs; of eight columns of sums, one per vector of signs.
__device__ __forceinline__ void multiply_tile(float (&sums)[4], const unsigned (&tile)[4], const SignFragment& signs) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(tile[0]), "r"(tile[1]), "r"(tile[2]), "r"(tile[3]), "r"(signs.words[0]), "r"(signs.words[1]));
}

/// A tile from shared memory: its quarters are upper left, lower left, upper right, lower right.
__device__ __forceinline__ void load_tile(unsigned (&tile)[4], unsigned address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(tile[0]), "=r"(tile[1]), "=r"(tile[2]), "=r"(tile[3])
               : "r"(address)
               : "memory");
}

/// The same tile transposed.
__device__ __forceinline__ void load_tile_transposed(unsigned (&tile)[4], unsigned address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%2,%1,%3}, [%4];"
               : "=r"(tile[0]), "=r"(tile[1]), "=r"(tile[2]), "=r"(tile[3])
               : "r"(address)
               : "memory");
}

/// Where a vector of a row lies in a stage: eight rows of one tile are in eight banks of 16 bytes.
__device__ __forceinline__ unsigned staged_vector(unsigned row, unsigned vector) {
  return row * kStripVectors + (vector ^ row % 8);
}

/// Begins to load 16 rows of a strip; zeros stand for what lies outside the matrix.
__device__ __forceinline__ void stage_rows(const MatrixView& matrix, unsigned first_row, unsigned first_column,
                                           Vector* stage) {
  const unsigned lane = threadIdx.x % kWarpLanes;
  const unsigned column = first_column + lane * BFloat16::kPerVector;
#pragma unroll
  for (unsigned i = 0; i < kTile; ++i) {
    const unsigned row = first_row + i;
    const bool is_inside = row < matrix.rows && column < matrix.columns;
    const void* const from = is_inside ? address_of<BFloat16>(matrix, row, column) : matrix.data;
    __pipeline_memcpy_async(stage + staged_vector(i, lane), from, sizeof(Vector), is_inside ? 0 : sizeof(Vector));
  }
}

/// Partial sums: of rows per strip, of columns per part of `kPartRows` rows.
template <unsigned kVectors, unsigned kPartRows, bool kRows, bool kColumns>
__global__ void __launch_bounds__(kTileThreads)
    add_tiles(MatrixView matrix, std::uint64_t columns_seed, std::uint64_t rows_seed, unsigned strips,
              float* __restrict__ of_rows, float* __restrict__ of_columns) {
  constexpr unsigned kColumnsInStrip = kStripTiles * kTile;
  constexpr unsigned kGroups = kPartRows / (kTile * kTileWarps);
  static_assert(kPartRows == kColumnsInStrip && kPartRows % (kTile * kTileWarps) == 0 && kGroups >= kTileStages);
  extern __shared__ __align__(16) Vector staged[];
  wait_for_kernels_before();
  const unsigned strip = blockIdx.x % strips;
  const unsigned part = blockIdx.x / strips;
  const unsigned warp = threadIdx.x / kWarpLanes;
  const unsigned lane = threadIdx.x % kWarpLanes;
  const unsigned first_column = strip * kColumnsInStrip;
  constexpr unsigned kStageVectors = kStageBytes / sizeof(Vector);
  Vector* const stages = staged + warp * kTileStages * kStageVectors;
  const auto row_of_group = [&](unsigned group) { return part * kPartRows + (group * kTileWarps + warp) * kTile; };
#pragma unroll
  for (unsigned group = 0; group < kTileStages; ++group) {
    stage_rows(matrix, row_of_group(group), first_column, stages + group * kStageVectors);
    __pipeline_commit();
  }
  const WarpSigns<kVectors> signs_of_rows(rows_seed, part * kPartRows);
  SignFragment column_signs[kRows ? kStripTiles : 1];
  float of_tile_columns[kStripTiles][4] = {};
  if constexpr (kRows) {
    const WarpSigns<kVectors> signs_of_columns(columns_seed, first_column);
#pragma unroll
    for (unsigned tile = 0; tile < kStripTiles; ++tile) column_signs[tile] = signs_of_columns.of_tile(tile);
  }
#pragma unroll 1
  for (unsigned group = 0; group < kGroups; ++group) {
    const unsigned first_row = row_of_group(group);
    Vector* const stage = stages + group % kTileStages * kStageVectors;
    const SignFragment row_signs = signs_of_rows.of_tile(group * kTileWarps + warp);
    float of_tile_rows[4] = {};
    __pipeline_wait_prior(kTileStages - 1);
    __syncwarp();
#pragma unroll
    for (unsigned tile = 0; tile < kStripTiles; ++tile) {
      const auto address =
          static_cast<unsigned>(__cvta_generic_to_shared(stage + staged_vector(lane % kTile, 2 * tile + lane / kTile)));
      unsigned fragment[4];
      if constexpr (kRows) {
        load_tile(fragment, address);
        multiply_tile(of_tile_rows, fragment, column_signs[tile]);
      }
      if constexpr (kColumns) {
        load_tile_transposed(fragment, address);
        multiply_tile(of_tile_columns[tile], fragment, row_signs);
      }
    }
    __syncwarp();
    if (group + kTileStages < kGroups) stage_rows(matrix, row_of_group(group + kTileStages), first_column, stage);
    __pipeline_commit();
    if constexpr (kRows) {
#pragma unroll
      for (unsigned i = 0; i < 4; ++i) {
        const unsigned row = first_row + lane / 4 + 8 * (i / 2);
        const unsigned k = 2 * (lane % 4) + i % 2;
        if (k >= kVectors || row >= matrix.rows) continue;
        of_rows[(std::size_t{strip} * kVectors + k) * matrix.rows + row] = of_tile_rows[i];
      }
    }
  }
  if constexpr (kColumns) {
    __syncthreads();                                          // the stages have been read
    auto* const of_warps = reinterpret_cast<float*>(staged);  // [warps][vectors][columns]
#pragma unroll
    for (unsigned tile = 0; tile < kStripTiles; ++tile) {
#pragma unroll
      for (unsigned i = 0; i < 4; ++i) {
        const unsigned k = 2 * (lane % 4) + i % 2;
        const unsigned column = tile * kTile + lane / 4 + 8 * (i / 2);
        if (k < kVectors) of_warps[(warp * kVectors + k) * kColumnsInStrip + column] = of_tile_columns[tile][i];
      }
    }
    __syncthreads();
    for (unsigned i = threadIdx.x; i < kVectors * kColumnsInStrip; i += kTileThreads) {
      const unsigned column = first_column + i % kColumnsInStrip;
      if (column >= matrix.columns) continue;
      float sum = of_warps[i];
#pragma unroll
      for (unsigned other = 1; other < kTileWarps; ++other) sum += of_warps[other * kVectors * kColumnsInStrip + i];
      of_columns[(std::size_t{part} * kVectors + i / kColumnsInStrip) * matrix.columns + column] = sum;
    }
  }
}

}  // namespace gnmr::kernels
