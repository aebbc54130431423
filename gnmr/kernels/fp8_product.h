// SPDX-License-Identifier: Apache-2.0
// Which GEMM multiplies two FP8 matrices on a device, and how scales lie for that.
//
//   const Fp8Plan plan = plan_fp8_product(left, right, ElementType::bfloat16, fp8_ability());
//
// Goals: decisions on plain numbers, for every layer that has tensors of its own (gnmr/torch, the Python package).
// Non-goals: quantizing (casts.h), multiplying (tile_product.h; torch has at::_scaled_mm).
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "gnmr/formats/cast.h"
#include "gnmr/kernels/casts.h"
#include "gnmr/kernels/element.h"

namespace gnmr::kernels {

/// Neighbours that share a scale in tiles and blocks.
inline constexpr std::uint64_t kFp8Group = 128;

/// A matrix as a GEMM sees it, [rows, depth]: depth is what the GEMM sums over.
struct Fp8Facing {
  formats::Format format = formats::Format::e4m3;
  CastGroups groups = CastGroups::tensor;
  std::uint64_t rows = 0;
  std::uint64_t depth = 0;
};

/// What a device can do.
struct Fp8Ability {
  int compute_capability = 0;     // as device.h has it
  bool has_tile_product = false;  // tile_product.h
};

/// What the current device can do.
Fp8Ability fp8_ability();

/// Who multiplies.
enum class Multiplier : std::uint8_t {
  numbers,  // nothing multiplies such data here: the dequantized numbers are multiplied
  torch,    // at::_scaled_mm
  own,      // multiply_tiles
};

/// How a GEMM runs.
struct Fp8Plan {
  Multiplier by = Multiplier::numbers;
  bool may_sum_fast = false;    // torch: sums may be kept with fewer bits, where the GEMM allows it
  bool spreads_blocks = false;  // torch: it takes the right side's scales of blocks as those of tiles only
};

/// The plan of left x right^T, [left.rows, right.rows]. `type` is that of the result; none: not one of the kernels'.
Fp8Plan plan_fp8_product(const Fp8Facing& left, const Fp8Facing& right, std::optional<ElementType> type,
                         const Fp8Ability& ability);

/// The extents of a side's scales, without gaps: {1, 1} (tensor, given); {rows, 1} (row); {tiles, rows} (tile); {rows
/// of blocks, blocks in a row} (block).
std::array<std::uint64_t, 2> fp8_scale_shape(CastGroups groups, std::uint64_t rows, std::uint64_t depth);

}  // namespace gnmr::kernels
