// SPDX-License-Identifier: Apache-2.0
// GEMMs of E4M3 matrices under scales of 128 neighbours, as a DeepSeek-style recipe needs them for weight gradients.
//
//   TileProductTask task{.a = ..., .a_scales = ..., .b = ..., .b_scales = ..., .rows = m, .columns = n, .depth = k};
//   task.product = ...;
//   if (tile_product_available()) multiply_tiles(task, stream);
//
// product[row, column] = sum over blocks of 128 of k: a's scale of row and block, times b's of column and block, times
// the sum over k in the block of a[row, k] b[column, k].
//
// Goals: a block's sum is that of Hopper's tensor cores (about 14 bits), everything across blocks is float32; a NaN
// element or scale makes all results of its row or column NaN; the same operands give the same bits; speed (about 1000
// TFLOP/s on an H200, tile_product_kernel.cuh has the numbers). Nothing waits for the device, and nothing is allocated.
// Non-goals: other GPUs (callers ask first), E5M2, gaps between rows, adding to what `product` holds.
//
// All pointers are to device memory, begin at multiples of 16 bytes and must live until the stream has passed. The
// result overlaps nothing.
#pragma once

#include <cstdint>

#include "gnmr/kernels/casts.h"

namespace gnmr::kernels {

/// One GEMM. Data and scales are as quantized with `CastGroups::tile` (or `block`, for b).
struct TileProductTask {
  const std::uint8_t* a = nullptr;         // [rows, depth], E4M3
  const float* a_scales = nullptr;         // [ceil(depth / 128), rows]
  const std::uint8_t* b = nullptr;         // [columns, depth], E4M3
  const float* b_scales = nullptr;         // tile: [ceil(depth / 128), columns]; block: rows of blocks of b
  std::uint64_t b_scale_stride = 0;        // block: from a row of blocks to the next; 0: no gaps
  CastGroups b_groups = CastGroups::tile;  // or block
  std::uint64_t rows = 0;                  // multiples of 16, all three
  std::uint64_t columns = 0;
  std::uint64_t depth = 0;
  void* product = nullptr;                   // [rows, columns]
  ElementType type = ElementType::bfloat16;  // or float32
};

/// Whether this is compiled in and the current device can do it: compute capability 9.0, no other. Never throws.
bool tile_product_available();

/// Multiplies. An `Error`, with nothing done, as `check_tile_product` or where it is not available. A GEMM without
/// rows or columns is done at once.
void multiply_tiles(const TileProductTask& task, void* stream);

/// Throws `Error` where a task cannot be: sizes that are not multiples of 16 or too large, nothing to sum over, missing
/// or unaligned pointers, an unknown type or kind of groups.
void check_tile_product(const TileProductTask& task);

}  // namespace gnmr::kernels
