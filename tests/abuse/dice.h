// SPDX-License-Identifier: Apache-2.0
// Random choices that follow from a seed alone, on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace gnmr::abuse {

/// The choices of one case.
class Dice {
 public:
  /// `stream` keeps cases of different kinds apart, `number` those of one kind.
  Dice(std::uint64_t seed, std::uint32_t stream, std::uint64_t number) {
    std::seed_seq sequence{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32U), stream,
                           static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(number >> 32U)};
    engine_.seed(sequence);
  }

  /// A number from 0 to `limit` - 1; not std::uniform_int_distribution, which differs between libraries.
  std::size_t below(std::size_t limit) { return limit == 0 ? 0 : static_cast<std::size_t>(engine_() % limit); }

  /// True once in `times`.
  bool once_in(std::size_t times) { return below(times) == 0; }

  template <class T>
  const T& one_of(const std::vector<T>& choices) {
    return choices[below(choices.size())];
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace gnmr::abuse
