// SPDX-License-Identifier: Apache-2.0
// A block's 128 x 128 elements in its registers, and the largest magnitudes of their rows and columns.
//
// Goals: a matrix is read once, 16 bytes at a time; magnitudes are compared as bits. Non-goals: FP8 data.
#pragma once

#include "gnmr/kernels/block_sum.cuh"
#include "gnmr/kernels/matrix_vectors.cuh"

namespace gnmr::kernels {

// A block takes 128 x 128 elements and keeps them in registers until all scales are known, so that they are read once.
// A warp has 16 of the rows; a lane four neighbouring ones of them (a word of transposed FP8 data) in 16 columns, of
// which its seven neighbours have the next ones: a load of a warp is four times 128 bytes, side by side.
constexpr unsigned kTile = 128;
constexpr unsigned kThreads = 256;
constexpr unsigned kWarps = kThreads / kWarpLanes;
constexpr unsigned kRowsPerLane = 4;
constexpr unsigned kLanesPerRow = 8;
constexpr unsigned kRowsPerWarp = kTile / kWarps;
static_assert(kRowsPerWarp == kRowsPerLane * kWarpLanes / kLanesPerRow);

template <class Element>
constexpr unsigned kVectors = kTile / kLanesPerRow / Element::kPerVector;  // of a lane in a row

/// What a lane holds.
template <class Element>
struct Patch {
  Vector at[kRowsPerLane][kVectors<Element>];
};

/// Where a lane's patch lies; columns are those of its first vector.
template <class Element>
struct Place {
  unsigned tile_row = 0;
  unsigned tile_column = 0;
  unsigned group = threadIdx.x % kLanesPerRow;  // of lanes: which vector of 8 neighbouring ones
  unsigned four = threadIdx.x / kLanesPerRow;   // which four of the tile's rows
  __device__ explicit Place(unsigned tiles_across)
      : tile_row(blockIdx.x / tiles_across), tile_column(blockIdx.x % tiles_across) {}
  __device__ unsigned row_in_tile() const { return four * kRowsPerLane; }
  __device__ unsigned column_in_tile(unsigned vector) const {
    return (vector * kLanesPerRow + group) * Element::kPerVector;
  }
  __device__ unsigned row() const { return tile_row * kTile + row_in_tile(); }
  __device__ unsigned column(unsigned vector) const { return tile_column * kTile + column_in_tile(vector); }
};

template <class Element>
__device__ __forceinline__ Patch<Element> load_patch(const MatrixView& matrix, const Place<Element>& place) {
  Patch<Element> patch;
  const bool is_whole = matrix.is_aligned && (place.tile_row + 1) * kTile <= matrix.rows &&
                        (place.tile_column + 1) * kTile <= matrix.columns;
  if (is_whole) {
    const auto* const from = address_of<Element>(matrix, place.row(), place.column(0));
#pragma unroll
    for (unsigned i = 0; i < kRowsPerLane; ++i) {
#pragma unroll
      for (unsigned v = 0; v < kVectors<Element>; ++v) {
        patch.at[i][v] = load_whole<Element>(from + i * matrix.columns + v * kLanesPerRow * Element::kPerVector);
      }
    }
  } else {
#pragma unroll
    for (unsigned i = 0; i < kRowsPerLane; ++i) {
#pragma unroll
      for (unsigned v = 0; v < kVectors<Element>; ++v) {
        patch.at[i][v] = load_vector<Element>(matrix, place.row() + i, place.column(v));
      }
    }
  }
  return patch;
}

template <class Element, bool kFiniteOnly>
__device__ __forceinline__ unsigned magnitudes_of(unsigned word) {
  return kFiniteOnly ? Element::finite_magnitudes(word) : Element::magnitudes(word);
}

/// The largest magnitudes of a lane's rows, as bits.
struct RowLargest {
  unsigned bits[kRowsPerLane];
  bool is_finite;  // every element of the patch is; where not, those that are not do not count

  __device__ unsigned all() const { return max(max(bits[0], bits[1]), max(bits[2], bits[3])); }
};

template <class Element, bool kFiniteOnly>
__device__ __forceinline__ void find_rows(const Patch<Element>& patch, RowLargest& largest) {
#pragma unroll
  for (unsigned i = 0; i < kRowsPerLane; ++i) {
    unsigned found = 0;
#pragma unroll
    for (unsigned v = 0; v < kVectors<Element>; ++v) {
#pragma unroll
      for (unsigned w = 0; w < 4; ++w) {
        found = Element::larger(found, magnitudes_of<Element, kFiniteOnly>(patch.at[i][v].words[w]));
      }
    }
    largest.bits[i] = Element::largest(found);
  }
}

template <class Element>
__device__ __forceinline__ RowLargest largest_of_rows(const Patch<Element>& patch) {
  RowLargest largest;
  find_rows<Element, false>(patch, largest);
  largest.is_finite = largest.all() < kInfiniteBits;
  if (!largest.is_finite) find_rows<Element, true>(patch, largest);
  return largest;
}

/// The largest magnitudes of whole rows of the tile, in all lanes that share them.
__device__ __forceinline__ void share_rows(unsigned (&bits)[kRowsPerLane]) {
#pragma unroll
  for (unsigned i = 0; i < kRowsPerLane; ++i) {
#pragma unroll
    for (unsigned distance = kLanesPerRow / 2; distance > 0; distance /= 2) {
      bits[i] = max(bits[i], __shfl_xor_sync(0xffffffffu, bits[i], distance));
    }
  }
}

template <class Element, bool kFiniteOnly>
__device__ __forceinline__ Vector largest_in_columns(const Patch<Element>& patch, unsigned v) {
  Vector found;
#pragma unroll
  for (unsigned w = 0; w < 4; ++w) {
    found.words[w] = magnitudes_of<Element, kFiniteOnly>(patch.at[0][v].words[w]);
#pragma unroll
    for (unsigned i = 1; i < kRowsPerLane; ++i) {
      found.words[w] = Element::larger(found.words[w], magnitudes_of<Element, kFiniteOnly>(patch.at[i][v].words[w]));
    }
  }
  return found;
}

/// The largest magnitude of a column of the tile, as bits, in thread `column`; all threads call it.
template <class Element>
__device__ __forceinline__ unsigned largest_of_column(const Patch<Element>& patch, bool is_finite,
                                                      const Place<Element>& place) {
  alignas(16) __shared__ typename Element::Scalar of_warps[kWarps][kTile];
#pragma unroll
  for (unsigned v = 0; v < kVectors<Element>; ++v) {
    Vector found =
        is_finite ? largest_in_columns<Element, false>(patch, v) : largest_in_columns<Element, true>(patch, v);
#pragma unroll
    for (unsigned w = 0; w < 4; ++w) {
#pragma unroll
      for (unsigned distance = kLanesPerRow; distance < kWarpLanes; distance *= 2) {
        found.words[w] = Element::larger(found.words[w], __shfl_xor_sync(0xffffffffu, found.words[w], distance));
      }
    }
    if (threadIdx.x % kWarpLanes < kLanesPerRow) {
      *reinterpret_cast<uint4*>(&of_warps[threadIdx.x / kWarpLanes][place.column_in_tile(v)]) = {
          found.words[0], found.words[1], found.words[2], found.words[3]};
    }
  }
  __syncthreads();
  if (threadIdx.x >= kTile) return 0;
  typename Element::Scalar largest = of_warps[0][threadIdx.x];
#pragma unroll
  for (unsigned warp = 1; warp < kWarps; ++warp) largest = max(largest, of_warps[warp][threadIdx.x]);
  return Element::widened(largest);
}

/// The largest over a block, in every thread; all threads call it, once per kernel.
__device__ __forceinline__ unsigned block_largest(unsigned value) {
  __shared__ unsigned of_warps[kWarps];
  value = __reduce_max_sync(0xffffffffu, value);
  if (threadIdx.x % kWarpLanes == 0) of_warps[threadIdx.x / kWarpLanes] = value;
  __syncthreads();
#pragma unroll
  for (unsigned warp = 0; warp < kWarps; ++warp) value = max(value, of_warps[warp]);
  return value;
}

}  // namespace gnmr::kernels
