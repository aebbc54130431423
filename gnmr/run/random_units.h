// SPDX-License-Identifier: Apache-2.0
// The rival that every detector must beat: as many units in recovery, chosen at random.
//
// Goals: a pure function of (seed, step), so that nothing is saved; a mean use equal to the share; never more units at
// a time than the share rounded up. Non-goals: looking at anything that happens in the run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gnmr/core/types.h"

namespace gnmr::run {

/// How units are chosen.
struct RandomUnits {
  std::size_t units = 0;
  double share = 0;             // of the units, in (0, 1)
  std::int64_t lock_steps = 1;  // that a choice lasts
  std::uint64_t seed = 0;
};

/// The units in recovery in a step, counted from 1, ascending. Every lock_steps steps all are chosen anew: share *
/// units of them, where that is no whole number one more as often as makes the mean right.
std::vector<UnitIndex> units_in_recovery(const RandomUnits& settings, std::int64_t step);

/// The same among those of all units that are not forced, however many `settings.units` says.
std::vector<UnitIndex> random_recoveries(std::span<const Unit> units, RandomUnits settings, std::int64_t step);

}  // namespace gnmr::run
