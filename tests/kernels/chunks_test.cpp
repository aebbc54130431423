// SPDX-License-Identifier: Apache-2.0
#include "gnmr/kernels/chunks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "gnmr/core/error.h"

namespace gnmr::kernels {
namespace {

const std::byte* at(std::uintptr_t address) { return reinterpret_cast<const std::byte*>(address); }

const std::byte* begin_of(const Chunk& chunk, const Slice& slice) {
  return static_cast<const std::byte*>(slice.data) + first_element(chunk) * bytes_of(chunk.type);
}

/// Calls `take` with the address and the bytes of each round of a chunk, as a warp reads it.
template <class Take>
void for_each_round(const Chunk& chunk, const Slice& slice, Take take) {
  const auto* const data = begin_of(chunk, slice);
  const std::size_t bytes = chunk.span * bytes_of(chunk.type);
  const std::size_t stride = std::size_t{chunk.stride} * 16;
  for (std::size_t first = 0; first < bytes; first += stride) take(data + first, std::min(kRoundBytes, bytes - first));
}

/// Expects that each byte of a unit's slices is in one chunk of the unit.
void expect_covers(const ChunkTable& table, const std::vector<Slice>& slices, std::uint32_t unit) {
  std::uint32_t index = table.first_chunk[unit];
  for (const Slice& slice : slices) {
    if (slice.unit != unit) continue;
    const auto* const data = static_cast<const std::byte*>(slice.data);
    std::vector<int> seen(slice.count * bytes_of(slice.type), 0);
    std::size_t left = seen.size();
    while (left > 0) {
      ASSERT_LT(index, table.first_chunk[unit + 1]);
      const Chunk& chunk = table.chunks[index++];
      EXPECT_EQ(chunk.type, slice.type);
      EXPECT_EQ(&slices[chunk.slice], &slice);
      const std::byte* const begin = begin_of(chunk, slice);
      EXPECT_TRUE(begin == data || reinterpret_cast<std::uintptr_t>(begin) % kChunkAlignment == 0);
      std::size_t size = 0;
      for_each_round(chunk, slice, [&](const std::byte* from, std::size_t bytes) {
        size += bytes;
        for (std::size_t i = 0; i < bytes; ++i) ++seen.at(static_cast<std::size_t>(from - data) + i);
      });
      EXPECT_GT(size, 0u);
      EXPECT_LE(size, kChunkBytes);
      ASSERT_LE(size, left);
      left -= size;
    }
    EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), static_cast<std::ptrdiff_t>(seen.size()));
  }
  EXPECT_EQ(index, table.first_chunk[unit + 1]);
}

TEST(Chunks, CoverEverySliceOnce) {
  std::vector<Slice> slices;
  std::uintptr_t address = 1 << 20;
  std::uint32_t unit = 0;
  for (const ElementType type : {ElementType::float32, ElementType::bfloat16, ElementType::float16}) {
    for (const std::uint64_t count :
         {0u, 1u, 7u, 8u, 1000u, 16383u, 16384u, 16385u, 32768u, 100001u, 131072u, 140000u, 400001u}) {
      for (const std::size_t offset : {0u, 1u, 3u, 8u, 63u}) {
        const std::uintptr_t start = address + offset * bytes_of(type);
        slices.push_back({.data = at(start), .count = count, .type = type, .unit = unit});
        address += 1 << 22;
        unit = (unit * 5 + 3) % 11;
      }
    }
  }
  ChunkTable table;
  build_chunks(slices, 11, table);
  ASSERT_EQ(table.first_chunk.size(), 12u);
  EXPECT_EQ(table.first_chunk.front(), 0u);
  EXPECT_EQ(table.first_chunk.back(), table.chunks.size());
  std::uint32_t most = 0;
  for (std::uint32_t i = 0; i < 11; ++i) {
    expect_covers(table, slices, i);
    most = std::max(most, table.first_chunk[i + 1] - table.first_chunk[i]);
  }
  EXPECT_EQ(most_chunks_of_a_unit(table), most);
}

TEST(Chunks, ReadSideBySideWhereASliceIsLarge) {
  const Slice slice{.data = at(1 << 20), .count = 5120 * 5120, .type = ElementType::bfloat16, .unit = 0};
  ChunkTable table;
  build_chunks({&slice, 1}, 1, table);
  ASSERT_EQ(table.chunks.size(), 1600u);
  for (std::size_t i = 0; i < table.chunks.size(); ++i) {
    EXPECT_EQ(begin_of(table.chunks[i], slice),
              at((1 << 20) + i / kSharing * kWindowBytes + i % kSharing * kRoundBytes));
    EXPECT_EQ(table.chunks[i].stride * std::size_t{16}, kSharing * kRoundBytes);
  }
}

TEST(Chunks, MayBeNone) {
  ChunkTable table;
  build_chunks({}, 3, table);
  EXPECT_TRUE(table.chunks.empty());
  EXPECT_EQ(table.first_chunk, std::vector<std::uint32_t>(4, 0));
  EXPECT_EQ(most_chunks_of_a_unit(table), 0u);
}

TEST(Chunks, RefuseWhatCannotBeRead) {
  ChunkTable table;
  const std::vector<Slice> good{{.data = at(64), .count = 8, .unit = 0}};
  build_chunks(good, 1, table);
  for (const Slice& bad :
       {Slice{.data = at(64), .count = 8, .unit = 1}, Slice{.data = at(64), .count = kMostElements + 1, .unit = 0},
        Slice{.data = at(66), .count = 8, .unit = 0},
        Slice{.data = at(65), .count = 8, .type = ElementType::float16, .unit = 0}}) {
    EXPECT_THROW(build_chunks(std::vector<Slice>{good[0], bad}, 1, table), Error);
    EXPECT_EQ(table.chunks.size(), 1u);
  }
  const Slice nothing{.data = nullptr, .count = 0, .unit = 0};
  EXPECT_NO_THROW(build_chunks({&nothing, 1}, 1, table));
}

TEST(Chunks, BeginFarIntoALargeSlice) {
  // Beyond 2^32 elements, as a stack of experts has them.
  const Slice slice{.data = at(1 << 20), .count = (std::uint64_t{5} << 30) + 3, .type = ElementType::bfloat16};
  ChunkTable table;
  build_chunks({&slice, 1}, 1, table);
  const Chunk& last = table.chunks.back();
  EXPECT_GT(first_element(last), std::uint64_t{1} << 32);
  EXPECT_EQ(first_element(last) + last.span, slice.count);
}

TEST(Chunks, StayWhereGradientsMoveByWholeLines) {
  const Slice slice{.data = at(1 << 20), .count = 100'001, .type = ElementType::bfloat16, .unit = 3};
  Slice moved = slice;
  moved.data = at((1 << 22) + 5 * kChunkAlignment);
  EXPECT_TRUE(has_shape_of(slice, moved));
  moved.data = nullptr;
  EXPECT_TRUE(has_shape_of(slice, moved));
  EXPECT_TRUE(has_shape_of(moved, slice));
  Slice off = slice;
  off.data = at((1 << 20) + 2);
  EXPECT_FALSE(has_shape_of(off, slice));
  EXPECT_FALSE(has_shape_of(off, moved));
  EXPECT_TRUE(has_shape_of(moved, off));
  for (const Slice& other : {Slice{.data = slice.data, .count = 100'000, .type = slice.type, .unit = 3},
                             Slice{.data = slice.data, .count = 100'001, .type = ElementType::float16, .unit = 3},
                             Slice{.data = slice.data, .count = 100'001, .type = slice.type, .unit = 2}}) {
    EXPECT_FALSE(has_shape_of(slice, other));
  }
}

}  // namespace
}  // namespace gnmr::kernels
