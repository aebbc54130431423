// SPDX-License-Identifier: Apache-2.0
// How large the errors of each unit always are, and whose are far above those of other units: sections "Levels",
// "Coarse units" and "Filling units" of docs/algorithm.md.
//
// Goals: the same numbers on every machine (no logarithm of the C library); no allocation after construction; a step
// without errors costs nothing. Non-goals: who gets a place in the budget (budget.h), outliers (error_history.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gnmr/core/options.h"
#include "gnmr/core/state.h"
#include "gnmr/core/types.h"
#include "gnmr/core/weight_table.h"

namespace gnmr {

/// From one review of the levels to the next, in decisions; also from one measurement of a unit in recovery to the
/// next, in steps.
inline constexpr std::uint32_t kReviewInterval = 20;

/// The binary logarithm of a positive number, linear between powers of two.
double linear_log2(double x);

/// Its inverse.
double linear_exp2(double y);

/// What the levels of a unit say of standing recovery.
struct StandingClaim {
  RiskKind kind = RiskKind::none;  // `coarse`, `fill`, or none
  double key = 0;                  // of those of a kind the largest comes first
};

/// The claims of all units, in a review; empty: there is none.
struct StandingClaims {
  std::span<const StandingClaim> of_units = {};
  std::span<const UnitIndex> order = {};  // units with a claim: coarse ones, then filling ones, the largest key first

  bool empty() const { return of_units.empty(); }
};

/// The levels of all sites of all units.
class ErrorLevels {
 public:
  ErrorLevels(const std::vector<Unit>& units, std::uint32_t sites, const Options& options);

  /// Whether there are standing recoveries at all.
  bool is_on() const { return sites_ > 0; }

  /// Takes in the errors of a decision (units x sites, NaN: not measured).
  void learn(std::span<const double> errors, std::uint64_t decision);

  /// Finds the claims. `standing`: the units in standing recovery, for which less is enough; `filling`: those of them
  /// that fill. Valid until the next call.
  StandingClaims find_claims(std::uint64_t decision, std::span<const UnitIndex> standing,
                             std::span<const UnitIndex> filling);

  /// The median error of a site when claims were found last; NaN where it is not known.
  double median(std::uint32_t site) const;

  /// The squared errors of a unit beyond these medians, over its sites.
  double excess(UnitIndex unit, std::uint64_t decision) const;

  /// The error that a level stands for; NaN where it is not known in this decision.
  double usual_error(UnitIndex unit, std::uint32_t site, std::uint64_t decision) const;

  /// Whether an error was ever taken in.
  bool has_any() const { return most_samples_ > 0; }

  void save_unit(UnitIndex unit, std::uint64_t decision, std::span<LevelState> sites) const;
  void restore_unit(UnitIndex unit, std::uint64_t decision, std::span<const LevelState> sites);

 private:
  struct Level {
    std::uint32_t samples = 0;  // n
    double sum = 0;             // l
    std::uint64_t last = 0;     // the decision that took the last error in
  };

  bool is_recent(const Level& level, std::uint64_t decision) const;
  bool is_known(const Level& level, std::uint64_t decision) const;
  double value(const Level& level) const { return level.sum / weights_.complement(level.samples); }
  void find_median(std::uint32_t site, std::uint64_t decision);
  void find_coarse(std::uint32_t site, std::uint64_t decision);
  void find_filling(std::uint64_t decision);

  std::uint32_t sites_;  // 0: off
  double coarse_error_;
  double coarse_factor_;
  double coarse_fill_;
  std::vector<double> costs_;
  std::vector<Level> levels_;  // units x sites
  WeightTable weights_;
  std::uint32_t most_samples_ = 0;
  std::array<double, kMostSites> medians_{};  // as levels; infinite: not known
  std::vector<double> sorted_;
  std::vector<RiskKind> held_;  // per unit: for what it is in standing recovery, for which less is enough
  std::vector<StandingClaim> claims_;
  std::vector<UnitIndex> order_;
};

}  // namespace gnmr
