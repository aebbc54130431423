// SPDX-License-Identifier: Apache-2.0
#include "gnmr/kernels/chunks.h"

#include <algorithm>
#include <string>
#include <utility>

#include "gnmr/core/error.h"

namespace gnmr::kernels {
namespace {

// The device counts them in 32 bits and a little beyond the last.
constexpr std::uint64_t kMostChunks = std::uint64_t{1} << 31;

std::uintptr_t address_of(const void* data) { return reinterpret_cast<std::uintptr_t>(data); }

void check(const Slice& slice, std::size_t index, std::uint32_t units) {
  const auto reject = [index](const std::string& what) {
    throw Error("[slice " + std::to_string(index) + "] expected " + what);
  };
  if (slice.unit >= units) {
    reject("a unit below " + std::to_string(units) + ", got " + std::to_string(slice.unit));
  }
  if (slice.count > kMostElements) {
    reject("at most " + std::to_string(kMostElements) + " elements, got " + std::to_string(slice.count));
  }
  if (address_of(slice.data) % bytes_of(slice.type) != 0) {
    reject("an address that is a multiple of " + std::to_string(bytes_of(slice.type)));
  }
}

constexpr std::size_t kVectorBytes = 16;

/// Calls `take` with each chunk of a slice.
template <class Take>
void for_each_chunk(const Slice& slice, std::uint32_t index, Take take) {
  const std::size_t size = bytes_of(slice.type);
  std::uint64_t done = 0;  // bytes
  std::uint64_t left = slice.count * size;
  const auto chunk = [&](std::size_t offset, std::uint64_t bytes, std::size_t stride_bytes) {
    const std::uint64_t first = (done + offset) / size;
    take(Chunk{.slice = index,
               .low_first = static_cast<std::uint32_t>(first),
               .span = static_cast<std::uint32_t>(bytes / size),
               .high_first = static_cast<std::uint8_t>(first >> 32),
               .type = slice.type,
               .stride = static_cast<std::uint16_t>(stride_bytes / kVectorBytes)});
  };
  while (left > 0) {
    // A first chunk that begins off a line is shorter, so that the next begins on one.
    const std::size_t lead = (address_of(slice.data) + done) % kChunkAlignment;
    std::uint64_t taken = std::min<std::uint64_t>(left, kChunkBytes - lead);
    if (lead == 0 && left >= kWindowBytes) {
      taken = kWindowBytes;
      constexpr std::size_t kStrideBytes = kSharing * kRoundBytes;
      for (std::size_t i = 0; i < kSharing; ++i) {
        chunk(i * kRoundBytes, kWindowBytes - kStrideBytes + kRoundBytes, kStrideBytes);
      }
    } else {
      chunk(0, taken, kRoundBytes);
    }
    done += taken;
    left -= taken;
  }
}

std::uint64_t chunks_of(const Slice& slice) {
  if (slice.count == 0) return 0;
  const std::uint64_t lead = address_of(slice.data) % kChunkAlignment;
  return (lead + slice.count * bytes_of(slice.type) + kChunkBytes - 1) / kChunkBytes;
}

}  // namespace

bool has_shape_of(const Slice& slice, const Slice& other) {
  const bool alike = slice.data == nullptr || (address_of(slice.data) - address_of(other.data)) % kChunkAlignment == 0;
  return alike && slice.count == other.count && slice.type == other.type && slice.unit == other.unit;
}

void build_chunks(std::span<const Slice> slices, std::uint32_t units, ChunkTable& table) {
  std::vector<std::uint32_t> first(std::size_t{units} + 1, 0);
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < slices.size(); ++i) {
    check(slices[i], i, units);
    const std::uint64_t chunks = chunks_of(slices[i]);
    total += chunks;
    if (total > kMostChunks) throw Error("[slices] expected at most 2^31 chunks of " + std::to_string(kChunkBytes));
    first[slices[i].unit + 1] += static_cast<std::uint32_t>(chunks);
  }
  for (std::size_t unit = 0; unit < units; ++unit) first[unit + 1] += first[unit];

  std::vector<Chunk> chunks(total);
  std::vector<std::uint32_t> next(first.begin(), first.end() - 1);
  for (std::uint32_t index = 0; index < slices.size(); ++index) {
    const Slice& slice = slices[index];
    for_each_chunk(slice, index, [&](const Chunk& chunk) { chunks[next[slice.unit]++] = chunk; });
  }
  table.chunks = std::move(chunks);
  table.first_chunk = std::move(first);
}

std::uint32_t most_chunks_of_a_unit(const ChunkTable& table) {
  std::uint32_t most = 0;
  for (std::size_t unit = 0; unit + 1 < table.first_chunk.size(); ++unit) {
    most = std::max(most, table.first_chunk[unit + 1] - table.first_chunk[unit]);
  }
  return most;
}

}  // namespace gnmr::kernels
