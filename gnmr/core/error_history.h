// SPDX-License-Identifier: Apache-2.0
// The usual error of each site of each unit, and which errors are above their limits: section "Outliers" of
// docs/algorithm.md.
//
// Goals: no allocation after construction; a step without errors costs nothing.
// Non-goals: what is done about an error (selection.h), measuring it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gnmr/core/options.h"
#include "gnmr/core/state.h"
#include "gnmr/core/step.h"
#include "gnmr/core/types.h"
#include "gnmr/core/weight_table.h"

namespace gnmr {

/// An error of a patrol may be an estimate: it calls a trial above this many times its limit.
inline constexpr double kPatrolMargin = 1.25;

/// Where errors come from: only in a trial is a unit compared with the others.
enum class ErrorSource : std::uint8_t { patrol, trial };

/// The usual errors of all sites of all units. Errors come as units x sites, those of a unit side by side, NaN where
/// nothing was measured.
class ErrorHistory {
 public:
  /// `expected`: the format's own error per site, 0 where it is not known.
  ErrorHistory(std::size_t units, std::vector<double> expected, const Options& options);

  std::uint32_t sites() const { return static_cast<std::uint32_t>(expected_.size()); }
  std::size_t size() const { return memory_.size(); }

  /// Finds the units with an error above its limit; usual errors do not change. No error is negative.
  void judge(std::span<const double> errors, ErrorSource source, std::vector<Finding>& found);

  /// Takes the errors that were judged last into the usual ones, unless they were above their limits.
  void learn();

  /// Forgets everything.
  void forget();

  /// Forgets what was judged.
  void discard() { judged_any_ = false; }

  /// What was judged last, as it was given; empty: nothing.
  std::span<const double> judged() const { return judged_any_ ? std::span(judged_) : std::span<const double>(); }

  /// Whether an error of the unit was judged last.
  bool was_measured(UnitIndex unit) const;

  /// Whether an infinite error of the unit was.
  bool had_infinite(UnitIndex unit) const;

  /// The limit of an error that was judged last; NaN where it was not.
  double limit(UnitIndex unit, std::uint32_t site) const;

  /// From here on `patrol_limits` are kept up to date.
  void keep_patrol_limits();

  /// What an error of a patrol must not exceed (its limit times `kPatrolMargin`), units x sites, each rounded up to a
  /// float; empty: they are not kept.
  std::span<const float> patrol_limits() const { return patrol_limits_; }

  /// The state of one unit, site by site.
  std::span<const ErrorState> of_unit(UnitIndex unit) const;

  /// Takes over one unit.
  void restore_unit(UnitIndex unit, std::span<const ErrorState> sites);

 private:
  double reference_of(std::uint32_t site, const ErrorState& usual, ErrorSource source);
  double limit_of(std::uint32_t site, double reference) const;
  double median_of(std::uint32_t site);
  bool is_learned(std::size_t index) const;
  void update_patrol_limit(std::size_t index);
  std::size_t index(UnitIndex unit, std::uint32_t site) const { return std::size_t{unit} * sites() + site; }

  Options options_;
  std::vector<double> expected_;
  std::vector<ErrorState> memory_;
  WeightTable weights_;
  std::uint32_t most_samples_ = 0;
  std::vector<float> patrol_limits_;

  // The errors that were judged last, their limits, and medians as far as they were needed.
  bool judged_any_ = false;
  std::vector<double> judged_;
  std::vector<double> limits_;
  std::array<bool, kMostSites> median_known_{};
  std::array<double, kMostSites> medians_{};
  std::vector<double> sorted_;
};

}  // namespace gnmr
