// SPDX-License-Identifier: Apache-2.0
// Gradients cut into chunks, each the work of one warp: the table that the norms walk.
//
// Goals: any number of slices per unit, in any order; chunks of a unit stand side by side, so that its sum is a sum
// over a range; every chunk but the first of a slice begins where a cache line does; where there is enough, eight
// chunks that run at the same time read side by side, which is fast. Chunks say where they are in their slice, not
// in memory: gradients move from step to step, and their shapes do not. Non-goals: devices; nothing here is read
// through a pointer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gnmr/kernels/element.h"

namespace gnmr::kernels {

/// Elements side by side in memory that belong to one unit: a tensor, or a part of one.
struct Slice {
  const void* data = nullptr;  // aligned as its elements are, at least; null: there is nothing in this step
  std::uint64_t count = 0;
  ElementType type = ElementType::float32;
  std::uint32_t unit = 0;

  bool operator==(const Slice&) const = default;
};

/// What a warp reads at once: eight 16-byte loads of each of its 32 lanes.
inline constexpr std::size_t kRoundBytes = std::size_t{4} * 1024;

/// What one warp sums: eight rounds. An entry of 16 bytes for these is 0.05% of the bytes that are read; with twice as
/// much the last warps of a small model would run alone for too long.
inline constexpr std::size_t kChunkBytes = 8 * kRoundBytes;

/// As many chunks share a window, round by round in turn: together they read 32 KB in a row.
inline constexpr std::size_t kSharing = 8;
inline constexpr std::size_t kWindowBytes = kSharing * kChunkBytes;

/// Chunks begin at multiples of this many bytes: a cache line.
inline constexpr std::size_t kChunkAlignment = 128;

/// Elements of a slice that a chunk can begin at, at most: 40 bits.
inline constexpr std::uint64_t kMostElements = std::uint64_t{1} << 40;

/// Rounds of a slice; the device reads it in one load.
struct alignas(16) Chunk {
  std::uint32_t slice;
  std::uint32_t low_first;  // low bits of the first element's index
  std::uint32_t span;       // elements from the first to behind the last
  std::uint8_t high_first;
  ElementType type;
  std::uint16_t stride;  // 16-byte vectors from one round to the next: those of a round where the chunk is in one piece
};

/// The index of a chunk's first element in its slice.
constexpr std::uint64_t first_element(const Chunk& chunk) {
  return std::uint64_t{chunk.high_first} << 32 | chunk.low_first;
}

/// All chunks, by unit and within a unit in the order of its slices.
struct ChunkTable {
  std::vector<Chunk> chunks;
  std::vector<std::uint32_t> first_chunk;  // units + 1 of them: where a unit's chunks begin, and the last one's end
};

/// Whether a slice can be read by the chunks of another, wherever the two lie: they are cut at lines of the cache. One
/// without an address can.
bool has_shape_of(const Slice& slice, const Slice& other);

/// Cuts slices into chunks; one without an address as if it began at a line. An `Error`, with `table` as it was, for a
/// unit that is not below `units`, an address that is not a multiple of the element's size, or too many elements.
void build_chunks(std::span<const Slice> slices, std::uint32_t units, ChunkTable& table);

/// The chunks of the unit that has most.
std::uint32_t most_chunks_of_a_unit(const ChunkTable& table);

}  // namespace gnmr::kernels
