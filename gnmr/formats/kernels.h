// SPDX-License-Identifier: Apache-2.0
// Loops over contiguous numbers, compiled once per instruction set and picked at run time.
//
// Private to the layer. Every set gives the same bits. Rounding knows no scale and scaling no format: a piece of a row
// is divided, rounded and multiplied while it is in the first cache.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gnmr/formats/element.h"

namespace gnmr::formats {

/// How a run of numbers is rounded.
struct RoundTask {
  OverflowTarget target;
  RandomKey key;
  std::uint32_t first_index;  // lower half of the first element's index; the run does not cross a multiple of 2^32
};

/// Scales of a run that starts at the beginning of a group; the last group may be cut.
struct GroupScales {
  const float* scales;
  std::size_t group_size;
};

/// What became of a run, in sums of a fixed order.
struct Tally {
  std::uint32_t non_finite = 0;
  std::uint32_t overflowed = 0;
  std::uint32_t flushed = 0;
  double squared_error = 0;
  double squared_values = 0;
};

/// A run before and after quantization: as it was, as the format holds it, and times its scale.
struct TallyTask {
  const float* originals;
  const float* rounded;
  const float* restored;
  std::size_t count;
};

/// The loops of one instruction set. Output may be the input, else they do not overlap.
struct Kernels {
  const char* name;
  void (*round[kFormatCount][kRoundingCount])(const float* in, std::size_t count, const RoundTask&, float* out);
  void (*encode[kFormatCount][kRoundingCount])(const float* in, std::size_t count, const RoundTask&, std::uint8_t* out);
  void (*encode_bfloat16[kRoundingCount])(const float* in, std::size_t count, const RoundTask&, std::uint16_t* out);
  void (*decode[kFormatCount])(const std::uint8_t* in, std::size_t count, float* out);
  void (*decode_bfloat16)(const std::uint16_t* in, std::size_t count, float* out);
  void (*divide)(const float* in, std::size_t count, GroupScales, float* out);
  void (*multiply)(const float* in, std::size_t count, GroupScales, float* out);
  /// Raises each group's entry to the bits of its largest magnitude; infinity and NaN have the largest bits.
  void (*raise_amax)(const float* in, std::size_t count, std::size_t group_size, std::uint32_t* amax_bits);
  /// Puts `target`, with their signs, in the place of infinities; how many there were.
  std::uint32_t (*replace_infinities)(float* values, std::size_t count, float target);
  /// Adds up a run, but for overflows.
  void (*tally)(const TallyTask&, Tally&);
};

/// The kernels that this machine can run, best first.
struct KernelList {
  const Kernels* kernels[2];
  std::size_t count;
};
KernelList available_kernels();

/// The kernels in use: the first of those available.
const Kernels& best_kernels();

}  // namespace gnmr::formats
