// SPDX-License-Identifier: Apache-2.0
// Quantizes runs of contiguous numbers with any index and any length. Private to the layer.
#pragma once

#include "gnmr/formats/cast.h"
#include "gnmr/formats/kernels.h"

namespace gnmr::formats {

/// Elements that are worked on while they are in the first cache.
inline constexpr std::size_t kPieceSize = 1024;

/// A `Cast` with what its kernels need looked up.
class CastRuns {
 public:
  CastRuns(const Cast& cast, const Kernels& kernels);

  /// Rounds a run whose first element has this index; `rounded` may be `values`.
  void round(const float* values, std::size_t count, std::uint64_t index, float* rounded) const;

  /// Encodes a run; not for bfloat16.
  void encode(const float* values, std::size_t count, std::uint64_t index, std::uint8_t* codes) const;

  /// Encodes a run in bfloat16.
  void encode(const float* values, std::size_t count, std::uint64_t index, std::uint16_t* codes) const;

  /// Rounds at most kPieceSize values that stand divided by their scales in `rounded`, and counts what became of the
  /// `originals`.
  void round_counted(const float* originals, std::size_t count, std::uint64_t index, GroupScales groups, float* rounded,
                     Statistics& statistics) const;

  const Kernels& kernels() const { return kernels_; }

 private:
  template <class Kernel, class Output>
  void run(Kernel kernel, const float* values, std::size_t count, std::uint64_t index, OverflowTarget target,
           Output* output) const;

  Cast cast_;
  OverflowTarget target_;
  const Kernels& kernels_;
};

}  // namespace gnmr::formats
