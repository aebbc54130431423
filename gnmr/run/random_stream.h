// SPDX-License-Identifier: Apache-2.0
// Random numbers that are a pure function of what they are for.
//
// A stream is named by a few whole numbers (a seed, a purpose, a step, ...); the same names give the same numbers on
// every machine and in every order of use, so nothing of it is ever saved.
//
// Goals: reproducible, independent streams, no state to keep. Non-goals: cryptography, distributions of <random>,
// which differ between libraries.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace gnmr::run {

/// What a stream is for; each has numbers of its own.
enum class RandomPurpose : std::uint64_t { data_order = 1, data_offset, random_units, faults, fault_details, samples };

/// One stream (SplitMix64).
class RandomStream {
 public:
  /// The stream of that purpose and those names.
  RandomStream(RandomPurpose purpose, std::initializer_list<std::int64_t> names) {
    state_ = mix(static_cast<std::uint64_t>(purpose));
    for (const std::int64_t name : names) state_ = mix(state_ + kGolden + static_cast<std::uint64_t>(name));
  }

  /// The next 64 bits.
  std::uint64_t next() { return mix(state_ += kGolden); }

  /// A whole number below `limit` (at least 1), all equally likely.
  std::uint64_t below(std::uint64_t limit) {
    const std::uint64_t excess = (0 - limit) % limit;  // 2^64 mod limit: what would make the first numbers likelier
    std::uint64_t bits = next();
    while (bits < excess) bits = next();
    return bits % limit;
  }

  /// A number in [0, 1).
  double unit() { return static_cast<double>(next() >> 11U) * 0x1p-53; }

 private:
  static constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15U;

  static std::uint64_t mix(std::uint64_t bits) {
    bits = (bits ^ (bits >> 30U)) * 0xBF58476D1CE4E5B9U;
    bits = (bits ^ (bits >> 27U)) * 0x94D049BB133111EBU;
    return bits ^ (bits >> 31U);
  }

  std::uint64_t state_;
};

}  // namespace gnmr::run
