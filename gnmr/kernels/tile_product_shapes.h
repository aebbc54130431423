// SPDX-License-Identifier: Apache-2.0
// The shapes of tiles that tile_product.h chooses from. For its check and its benchmark.
//
// Goals: every shape can be asked for by its number. Non-goals: stable numbers or names.
#pragma once

#include <cstddef>
#include <string>

#include "gnmr/kernels/tile_product.h"

namespace gnmr::kernels {

/// How many shapes there are for b's groups. Nothing here is there without CUDA.
std::size_t tile_shape_count(CastGroups b_groups);

/// What a shape is, in words: the tile, the consumers, the sums in flight, the stages.
std::string tile_shape_name(CastGroups b_groups, std::size_t shape);

/// The shape that `multiply_tiles` chooses on the current device.
std::size_t best_tile_shape(const TileProductTask& task);

/// As `multiply_tiles`, with that shape.
void multiply_tiles_with(std::size_t shape, const TileProductTask& task, void* stream);

}  // namespace gnmr::kernels
