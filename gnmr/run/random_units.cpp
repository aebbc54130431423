// SPDX-License-Identifier: Apache-2.0
#include "gnmr/run/random_units.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "gnmr/core/error.h"
#include "gnmr/run/random_stream.h"

namespace gnmr::run {

std::vector<UnitIndex> units_in_recovery(const RandomUnits& settings, std::int64_t step) {
  if (!(settings.share >= 0 && settings.share <= 1) || settings.lock_steps < 1 || step < 1) {
    throw Error("[random units] expected a share in [0, 1], lock_steps >= 1 and a step >= 1");
  }
  RandomStream random(RandomPurpose::random_units,
                      {static_cast<std::int64_t>(settings.seed), (step - 1) / settings.lock_steps});
  const double wanted = settings.share * static_cast<double>(settings.units);
  const double whole = std::floor(wanted);
  const auto count = static_cast<std::size_t>(whole) + (random.unit() < wanted - whole ? 1U : 0U);
  std::vector<UnitIndex> units(settings.units);
  std::iota(units.begin(), units.end(), UnitIndex{0});
  // The first `count` places of a shuffle.
  for (std::size_t i = 0; i < count; ++i) std::swap(units[i], units[i + random.below(units.size() - i)]);
  units.resize(count);
  std::sort(units.begin(), units.end());
  return units;
}

std::vector<UnitIndex> random_recoveries(std::span<const Unit> units, RandomUnits settings, std::int64_t step) {
  std::vector<UnitIndex> free_units;
  for (UnitIndex unit = 0; unit < units.size(); ++unit) {
    if (!units[unit].forced) free_units.push_back(unit);
  }
  settings.units = free_units.size();
  std::vector<UnitIndex> chosen;
  for (const UnitIndex place : units_in_recovery(settings, step)) chosen.push_back(free_units[place]);
  return chosen;
}

}  // namespace gnmr::run
