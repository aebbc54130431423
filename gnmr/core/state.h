// SPDX-License-Identifier: Apache-2.0
// What a controller remembers, as plain values: the exchange between the controller and whatever stores it.
//
// Everything is relative (steps left, samples since), so that a state means the same at any step number. The weights
// `p` and `w` of docs/algorithm.md are not here: they follow from the counts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gnmr/core/options.h"
#include "gnmr/core/types.h"

namespace gnmr {

/// The memory of one unit.
struct UnitState {
  std::string name;
  std::uint32_t samples = 0;     // k
  std::uint32_t changes = 0;     // how often q and f have learned
  double mean_sum = 0;           // m
  double rise_change_sum = 0;    // q
  double fall_change_sum = 0;    // f
  std::vector<double> ratios;    // kept ones, oldest first; shorter than the window: the oldest counts for the rest
  std::vector<double> inverses;  // as many

  std::uint32_t last_lock_steps = 0;        // the lock it was last given; 0: never in recovery
  bool was_released = false;                // it has been released since it was first admitted
  std::uint32_t samples_since_release = 0;  // the step of release not counted; meaningful after a release
  std::uint32_t wait_steps = 0;             // still passed over for this many decisions, the next one included
  bool zero_muted = false;                  // a norm of 0 counts as no sample until a finite one that is not 0

  bool in_recovery = false;
  std::uint32_t steps_left = 0;         // of the lock
  std::uint32_t steps_in_recovery = 0;  // so far
  bool sampled_in_recovery = false;     // since it was admitted
  RiskKind admitted_for = RiskKind::none;

  bool operator==(const UnitState&) const = default;
};

/// The memory of a controller, with the options under which it was gathered.
struct ControllerState {
  Options options;
  std::uint64_t decisions = 0;  // taken so far
  std::int64_t last_step = 0;   // step number of the last one
  std::vector<UnitState> units;

  bool operator==(const ControllerState&) const = default;
};

/// What one place of one unit remembers of its errors.
struct ErrorState {
  std::uint32_t samples = 0;  // k
  double mean_sum = 0;        // m

  bool operator==(const ErrorState&) const = default;
};

/// The memory of a judge (judge.h).
struct JudgeState {
  ControllerState controller;
  std::uint32_t places = 0;               // 0: nothing is known of errors, as in the state of a plain controller
  std::vector<ErrorState> errors;         // units times places, in the order of `controller.units`
  std::vector<std::uint32_t> reruns_ago;  // decisions since each rerun of the last 99, ascending; 0: in the last one

  bool operator==(const JudgeState&) const = default;
};

/// At most this many places a unit.
inline constexpr std::uint32_t kMostPlaces = 16;

/// A rerun counts for this many decisions after its own.
inline constexpr std::uint32_t kRerunMemory = 99;

/// Throws `Error` for a state that no controller can have written: values out of range, names twice, ...
void check_state(const ControllerState& state);

/// The same for a judge's.
void check_state(const JudgeState& state);

/// What loading a state did besides taking over histories.
struct RestoreReport {
  std::vector<std::string> unknown_units;   // in the state, not in this controller: dropped
  std::vector<std::string> new_units;       // in this controller, not in the state: they start afresh
  std::vector<std::string> released_units;  // recoveries that no longer fit
  bool beta_changed = false;                // means start afresh
  bool noise_beta_changed = false;          // usual changes start afresh
  bool window_changed = false;
  bool error_beta_changed = false;  // usual errors start afresh (a judge's)
  bool places_changed = false;      // likewise

  /// Whether the state was taken over without any change.
  bool exact() const {
    return unknown_units.empty() && new_units.empty() && released_units.empty() && !beta_changed &&
           !noise_beta_changed && !window_changed && !error_beta_changed && !places_changed;
  }
};

}  // namespace gnmr
