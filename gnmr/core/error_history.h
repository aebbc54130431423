// SPDX-License-Identifier: Apache-2.0
// What error is usual for each place of each unit, and what stands out: section "What stands out" of docs/algorithm.md.
//
// Goals: no allocation after construction; a step without errors costs nothing.
// Non-goals: what is done about an error (judge.h), measuring it.
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

/// Units that stand out, ascending, and of each the error that does so most; all lists are as long.
struct StandingOut {
  std::vector<UnitIndex> units;
  std::vector<double> errors;
  std::vector<double> excesses;  // error over its limit
  std::vector<std::uint8_t> places;

  void reserve(std::size_t count);
  void clear();
  void add(UnitIndex unit, double error, double excess, std::uint32_t place);

  /// Leaves out the units for which `leaves(unit)` is true.
  template <class Leaves>
  void remove_if(Leaves leaves);

 private:
  void resize(std::size_t count);
};

/// Where errors come from: only in a trial are units judged by their neighbours.
enum class ErrorSource : std::uint8_t { patrol, trial };

/// The usual errors of all places of all units. Errors come as units times places, a unit's beside each other, NaN
/// where nothing was measured.
class ErrorHistory {
 public:
  /// `expected`: the format's own error of each place, 0 where it is not known.
  ErrorHistory(std::size_t units, std::vector<double> expected, const Options& options);

  std::uint32_t places() const { return static_cast<std::uint32_t>(expected_.size()); }
  std::size_t size() const { return memory_.size(); }

  /// Finds what stands out in the errors of a step; what is usual does not change. None is negative.
  void judge(std::span<const double> errors, ErrorSource source, StandingOut& found);

  /// Takes the errors that were judged last into what is usual, as far as they did not stand out.
  void learn();

  /// Forgets everything.
  void forget();

  /// Forgets what was judged.
  void discard() { judged_any_ = false; }

  /// Whether an error of the unit was judged last.
  bool was_measured(UnitIndex unit) const;

  /// The limit of an error that was judged last; NaN where it was not.
  double limit(UnitIndex unit, std::uint32_t place) const;

  /// What is remembered of one unit, a place after the other.
  std::span<const ErrorState> of_unit(UnitIndex unit) const;

  /// Takes over one unit.
  void restore_unit(UnitIndex unit, std::span<const ErrorState> places);

 private:
  double reference_of(std::uint32_t place, const ErrorState& usual, ErrorSource source);
  double limit_of(std::uint32_t place, double reference) const;
  double median_of(std::uint32_t place);
  std::size_t index(UnitIndex unit, std::uint32_t place) const { return std::size_t{unit} * places() + place; }

  Options options_;
  std::vector<double> expected_;
  std::vector<ErrorState> memory_;
  WeightTable weights_;
  std::uint32_t most_samples_ = 0;

  // The errors that were judged last, their limits, and medians as far as they were needed.
  bool judged_any_ = false;
  std::vector<double> judged_;
  std::vector<double> limits_;
  std::array<bool, kMostPlaces> median_known_{};
  std::array<double, kMostPlaces> medians_{};
  std::vector<double> sorted_;
};

template <class Leaves>
void StandingOut::remove_if(Leaves leaves) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < units.size(); ++i) {
    if (leaves(units[i])) continue;
    units[kept] = units[i];
    errors[kept] = errors[i];
    excesses[kept] = excesses[i];
    places[kept] = places[i];
    ++kept;
  }
  resize(kept);
}

}  // namespace gnmr
