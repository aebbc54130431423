// SPDX-License-Identifier: Apache-2.0
// Which units should always run high, from the errors that a run measured: what `gnmr plan` and `ctl.plan()` print.
//
// Goals: the choice of standing recovery (sections "Levels" to "Filling units" of docs/algorithm.md), made for a whole
// run; it says what was not measured. Non-goals: measuring, changing a run.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gnmr/core/error_levels.h"
#include "gnmr/core/options.h"
#include "gnmr/core/state.h"
#include "gnmr/core/types.h"

namespace gnmr::lab {

/// One unit of a plan.
struct PlannedUnit {
  std::string name;
  double cost_share = 0;            // of all units that are not forced
  std::vector<double> errors = {};  // usual ones, per site; NaN: not measured often enough
  double above = 0;                 // largest error over the median of its site; 0: none is known
  StandingClaim claim = {};         // by which units are chosen: coarse ones, then those that fill
  bool forced = false;              // the user keeps it high or low
  bool measured = false;            // some usual error is known
  bool chosen = false;

  bool is_coarse() const { return claim.kind == RiskKind::coarse; }
  bool fills() const { return claim.kind == RiskKind::fill; }  // it may be high though it is not coarse
};

/// Units in forward order, and what they come to.
struct HighPlan {
  std::vector<PlannedUnit> units;
  std::vector<double> medians;   // per site; NaN: fewer than five units are known
  std::uint64_t decisions = 0;   // of the run so far
  std::uint32_t max_units = 0;   // that the budget allows
  std::uint32_t chosen = 0;      // units
  std::uint32_t coarse = 0;      // units, those without room included
  std::uint32_t fills = 0;       // units that are not, but may fill the budget, those without room included
  std::uint32_t unmeasured = 0;  // units
  double cost_share = 0;         // of the chosen ones
  double removed_share = 0;      // of the squared errors above the median, those of the chosen units; this is what a
                                 // plan predicts: the share of the loss of low precision that it wins back

  /// The share of the units that are chosen.
  double unit_share() const;
};

/// The plan for these units by the levels of a state. Throws `Error` for a state without levels, and for options under
/// which nothing can be chosen.
HighPlan plan_high_units(const std::vector<Unit>& units, const ControllerState& state, const Options& options);

/// What to do with it.
std::string plan_table(const HighPlan& plan, const std::vector<std::string>& sites);

/// `check`: what runs said of it (`check_json`); empty: it was not checked.
std::string plan_json(const HighPlan& plan, const std::vector<std::string>& sites, std::string_view check = {});

/// `--always-high layers.0.down layers.1.down` for `gnmr train`; empty where nothing is chosen.
std::string plan_flags(const HighPlan& plan);

/// A filter for torchao's `convert_to_float8_training`, as Python text.
///
/// Throws an `Error` where a unit of the plan is no whole layer: the filter knows layers by their names.
std::string plan_filter(const HighPlan& plan);

}  // namespace gnmr::lab
