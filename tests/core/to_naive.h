// SPDX-License-Identifier: Apache-2.0
// Units and options as the naive implementation takes them, and bit-exact comparison.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/naive_judge.h"
#include "gnmr/core/options.h"
#include "gnmr/core/state.h"
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
         to_sizes(ours.released) == theirs.released && to_sizes(ours.recovered) == theirs.recovered &&
         to_sizes(ours.standing) == theirs.standing && to_sizes(ours.filling) == theirs.filling;
}

/// The cap on high precision has as much left.
inline bool same_bucket(const ControllerState& ours, const naive::Controller& theirs) {
  if (!theirs.has_cap()) return ours.high_bucket == HighBucketState{};
  return ours.high_bucket.size == theirs.bucket_size() && ours.high_bucket.level == theirs.bucket();
}

/// The same levels, as far as they are not forgotten, and the same keys of units in standing recovery.
inline bool same_levels(const ControllerState& ours, const naive::Judge& theirs) {
  if (!(theirs.controller().options().coarse_error > 0)) return true;
  bool same = ours.decisions == static_cast<std::uint64_t>(theirs.decisions());
  for (std::size_t i = 0; i < ours.levels.size(); ++i) {
    const std::size_t unit = i / ours.sites;
    const std::size_t site = i % ours.sites;
    const bool forgotten = theirs.levels().is_forgotten(theirs.decisions(), unit, site);
    same = same && ours.levels[i].samples == (forgotten ? 0 : theirs.levels().n(unit, site)) &&
           same_bits(ours.levels[i].sum, forgotten ? 0 : theirs.levels().l(unit, site));
  }
  for (std::size_t unit = 0; unit < ours.units.size(); ++unit) {
    const RiskKind kind = ours.units[unit].in_recovery ? ours.units[unit].admitted_for : RiskKind::none;
    const naive::RiskKind standing = theirs.controller().standing_for(unit);
    same = same && (kind == RiskKind::coarse) == (standing == naive::RiskKind::coarse) &&
           (kind == RiskKind::fill) == (standing == naive::RiskKind::fill) &&
           (!is_standing(kind) || same_bits(ours.units[unit].standing_key, theirs.controller().key(unit)));
  }
  return same;
}

}  // namespace gnmr::testing
