// SPDX-License-Identifier: Apache-2.0
#include "gnmr/kernels/host_squares.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "gnmr/core/error.h"
#include "gnmr/core/for_each_machine.h"

namespace gnmr::kernels {
namespace {

constexpr std::uint64_t kChunkElements = 16384;  // what is summed in a fixed order by one thread
constexpr std::size_t kLanes = 16;

/// Elements of some chunk of a slice.
struct Part {
  const Slice* slice;
  std::uint64_t first;
  std::uint64_t count;
};

double added_up(std::array<double, kLanes>& lanes) {
  for (std::size_t width = kLanes / 2; width > 0; width /= 2) {
    for (std::size_t lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  }
  return lanes[0];
}

struct FromFloat {
  using Stored = float;
  static float value(float stored) { return stored; }
};

struct FromBfloat16 {
  using Stored = std::uint16_t;
  static float value(std::uint16_t stored) { return std::bit_cast<float>(static_cast<std::uint32_t>(stored) << 16); }
};

struct FromHalf {
  using Stored = std::uint16_t;
  // Shifted into a float's places a half is 2^-112 times what it stands for, the smallest ones included; only its
  // infinities and NaNs need another exponent. No branch: loops become lanes.
  static float value(std::uint16_t stored) {
    const std::uint32_t magnitude = static_cast<std::uint32_t>(stored & 0x7fffu) << 13;
    const std::uint32_t sign = static_cast<std::uint32_t>(stored & 0x8000u) << 16;
    const float scaled = std::bit_cast<float>(magnitude) * 0x1p112f;
    const std::uint32_t special = magnitude >= 0x0f800000u ? 0x7f800000u : 0u;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled) | special | sign);
  }
};

/// The sum over one chunk: lanes of double, added up in a fixed order.
template <class From>
[[gnu::always_inline]] inline double sum_chunk(const typename From::Stored* values, std::uint64_t count) {
  std::array<double, kLanes> lanes{};
  std::uint64_t index = 0;
  for (; index + kLanes <= count; index += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const auto value = static_cast<double>(From::value(values[index + lane]));
      lanes[lane] += value * value;
    }
  }
  for (std::size_t lane = 0; index < count; ++index, ++lane) {
    const auto value = static_cast<double>(From::value(values[index]));
    lanes[lane] += value * value;
  }
  return added_up(lanes);
}

GNMR_FOR_EACH_MACHINE double sum_floats(const float* values, std::uint64_t count) {
  return sum_chunk<FromFloat>(values, count);
}

GNMR_FOR_EACH_MACHINE double sum_bfloat16s(const std::uint16_t* values, std::uint64_t count) {
  return sum_chunk<FromBfloat16>(values, count);
}

GNMR_FOR_EACH_MACHINE double sum_halves(const std::uint16_t* values, std::uint64_t count) {
  return sum_chunk<FromHalf>(values, count);
}

double sum_part(const Part& part) {
  const Slice& slice = *part.slice;
  switch (slice.type) {
    case ElementType::float32:
      break;
    case ElementType::bfloat16:
      return sum_bfloat16s(static_cast<const std::uint16_t*>(slice.data) + part.first, part.count);
    case ElementType::float16:
      return sum_halves(static_cast<const std::uint16_t*>(slice.data) + part.first, part.count);
  }
  return sum_floats(static_cast<const float*>(slice.data) + part.first, part.count);
}

}  // namespace

void sum_squares_on_host(std::span<const Slice> slices, std::span<double> sums, const ParallelFor& parallel_for) {
  std::vector<Part> parts;
  parts.reserve(slices.size());
  for (const Slice& slice : slices) {
    if (slice.unit >= sums.size()) {
      throw Error("[host squares] expected a unit below " + std::to_string(sums.size()) + ", got " +
                  std::to_string(slice.unit));
    }
    if (slice.data == nullptr) continue;
    for (std::uint64_t first = 0; first < slice.count; first += kChunkElements) {
      parts.push_back({&slice, first, std::min(kChunkElements, slice.count - first)});
    }
  }
  std::vector<double> part_sums(parts.size());
  parallel_for(parts.size(), [&](std::size_t first, std::size_t last) {
    for (std::size_t index = first; index < last; ++index) part_sums[index] = sum_part(parts[index]);
  });
  std::fill(sums.begin(), sums.end(), 0.0);
  for (std::size_t index = 0; index < parts.size(); ++index) sums[parts[index].slice->unit] += part_sums[index];
}

double sum_squares_on_host(const Slice& slice) {
  double sum = 0;
  Slice alone = slice;
  alone.unit = 0;
  sum_squares_on_host(std::span(&alone, 1), std::span(&sum, 1), run_alone);
  return sum;
}

}  // namespace gnmr::kernels
