// SPDX-License-Identifier: Apache-2.0
// Decisions, hearings and rulings as values that Python may keep: the core's own are views that end with the next step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gnmr/core/judge.h"
#include "gnmr/core/types.h"

namespace gnmr::python {

struct DecisionValue {
  DecisionValue() = default;
  explicit DecisionValue(const Decision& from);

  std::int64_t step = 0;
  bool common = false;
  std::vector<UnitIndex> recovered, admitted, denied, futile, released;
  std::int64_t recovered_cost = 0;
};

struct HearingValue {
  explicit HearingValue(const Hearing& from);

  std::int64_t step;
  std::string action;
  bool alarmed, dismissed, spent;
  std::vector<UnitIndex> standing_out;
};

struct RulingValue {
  explicit RulingValue(const Ruling& from);

  std::string verdict, action;
  std::vector<double> clip;
  DecisionValue decision;
  std::vector<UnitIndex> units;
  std::vector<double> errors, excesses;
  std::vector<std::uint8_t> places;
};

}  // namespace gnmr::python
