// SPDX-License-Identifier: Apache-2.0
// Units and options as the naive implementation takes them, and bit-exact comparison.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/naive_controller.h"
#include "gnmr/core/options.h"
#include "gnmr/core/types.h"

namespace gnmr::testing {

template <class To, class From>
void copy_option(To& to, From from) {
  to = from;
}
inline void copy_option(std::string& to, Selector from) { to = kSelectorWords[static_cast<std::size_t>(from)]; }
inline void copy_option(std::string& to, Guard from) { to = kGuardWords[static_cast<std::size_t>(from)]; }

inline naive::Options to_naive(const Options& options) {
  naive::Options result;
#define GNMR_COPY(type, name, default_value, paper_value, range, help) copy_option(result.name, options.name);
  GNMR_OPTIONS(GNMR_COPY)
#undef GNMR_COPY
  return result;
}

inline std::vector<naive::Unit> to_naive(const std::vector<Unit>& units) {
  std::vector<naive::Unit> result;
  for (const Unit& unit : units) result.push_back({unit.name, unit.cost, unit.group, unit.forced});
  return result;
}

inline std::vector<std::size_t> to_sizes(std::span<const UnitIndex> units) { return {units.begin(), units.end()}; }

inline bool same_bits(double a, double b) { return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b); }

inline bool same_decision(const Decision& ours, const naive::Decision& theirs) {
  return ours.common == theirs.common && to_sizes(ours.admitted) == theirs.admitted &&
         to_sizes(ours.denied) == theirs.denied && to_sizes(ours.futile) == theirs.futile &&
         to_sizes(ours.released) == theirs.released && to_sizes(ours.recovered) == theirs.recovered;
}

}  // namespace gnmr::testing
