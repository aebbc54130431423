// SPDX-License-Identifier: Apache-2.0
// The state of a controller as plain values: the exchange between the controller and whatever stores it.
//
// Everything is relative (steps left, samples since), so that a state means the same at any step number. The weights
// `p` and `w` of docs/algorithm.md are not here: they follow from the counts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gnmr/core/options.h"
#include "gnmr/core/step.h"
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
  std::uint32_t wait_steps = 0;             // no candidate for this many decisions, the next one included
  bool zero_muted = false;                  // a norm of 0 counts as no sample until a finite one that is not 0

  bool in_recovery = false;
  std::uint32_t steps_left = 0;         // of the lock
  std::uint32_t steps_in_recovery = 0;  // so far
  bool sampled_in_recovery = false;     // since it was admitted
  RiskKind admitted_for = RiskKind::none;
  double standing_key = 0;  // in standing recovery: its key in the last review; such a recovery has no lock

  bool operator==(const UnitState&) const = default;
};

/// The usual error of one site of one unit.
struct ErrorState {
  std::uint32_t samples = 0;  // k
  double mean_sum = 0;        // m

  bool operator==(const ErrorState&) const = default;
};

/// The level of one site of one unit; all 0: none is known.
struct LevelState {
  std::uint32_t samples = 0;  // n
  std::uint32_t age = 0;      // decisions since the last error, 1: it was measured in the last one
  double sum = 0;             // l

  bool operator==(const LevelState&) const = default;
};

/// A level is forgotten after so many decisions without an error.
inline constexpr std::uint32_t kLongestLevelGap = 200;

/// How much more than its limit a unit's norm must be to count, after trials that found no fault of low precision.
struct Doubt {
  std::uint32_t value = 1;           // 1: none; else 2, 4 or 8
  std::uint32_t decisions_left = 0;  // that it holds for; 0: there is none

  bool operator==(const Doubt&) const = default;
};

/// The largest doubt, and for how many decisions one holds.
inline constexpr std::uint32_t kMostDoubt = 8;
inline constexpr std::uint32_t kDoubtDecisions = 100;

/// The cap on high precision holds over so many decisions.
inline constexpr std::int64_t kHighBucketDecisions = 100;

/// No bucket is larger: units cost at most 2^53 together.
inline constexpr std::int64_t kMostHighBucket = kHighBucketDecisions << 53U;

/// What the cap on high precision (`max_high_share`) has left, in costs of units for one step.
struct HighBucketState {
  std::int64_t size = 0;   // 0: there is no cap
  std::int64_t level = 0;  // at most the size

  bool operator==(const HighBucketState&) const = default;
};

/// A batch that was held, and what it comes back as.
struct WaitingBatch {
  std::int64_t batch = 0;
  PassKind pass = PassKind::trial;

  bool operator==(const WaitingBatch&) const = default;
};

/// Lag 1: a step that is planned and not yet decided.
struct PlannedStep {
  std::int64_t step = 0;
  std::int64_t batch = 0;
  PassKind pass = PassKind::step;
  bool again = false;
  HoldRule hold = HoldRule::never;
  bool may_rerun = false;  // it is a rerun, or its gate may bring one about
  bool begun = false;
  bool in_force = true;  // false: the caller only watches
  bool failed = false;   // its trial failed, and it ran as a plain step

  bool operator==(const PlannedStep&) const = default;
};

/// Which batches wait, what the next step is, and what that knows of the units. Empty with lag 0, but for batches that
/// an earlier run with lag 1 left.
struct PlanState {
  std::int64_t next_batch = 0;  // the next fresh one; 0: the number of the first step that is planned
  std::vector<WaitingBatch> waiting = {};
  bool called = false;                      // the next step that is planned is a trial
  std::vector<PlannedStep> undecided = {};  // in the order of their steps, at most two
  std::vector<UnitIndex> recovered = {};    // in recovery in the step that was planned last, ascending
  bool recovered_is_next = false;           // nothing is planned, and `recovered` is that of the next step
  std::vector<std::uint8_t> flags = {};     // what its gate knows per unit (gate_flag)
  std::vector<float> error_limits = {};     // and per unit and site; empty: it has no limits

  bool operator==(const PlanState&) const = default;
};

/// The memory of a controller, with the options under which it was gathered.
struct ControllerState {
  Options options;
  std::uint64_t decisions = 0;  // taken so far
  std::int64_t last_step = 0;   // step number of the last one
  std::vector<UnitState> units;
  std::uint32_t sites = 0;                     // 0: no errors are known
  std::vector<ErrorState> errors = {};         // units x sites, in the order of `units`
  std::vector<LevelState> levels = {};         // likewise; empty: none was measured
  std::vector<std::uint32_t> reruns_ago = {};  // decisions since each rerun of the last 99, ascending; 0: the last one
  Doubt doubt = {};
  HighBucketState high_bucket = {};

  bool operator==(const ControllerState&) const = default;
};

/// At most this many sites per unit.
inline constexpr std::uint32_t kMostSites = 16;

/// A rerun counts for this many decisions after its own.
inline constexpr std::uint32_t kRerunMemory = 99;

/// Throws `Error` for a state that no controller can have written: values out of range, names twice, ...
void check_state(const ControllerState& state);

/// Throws `Error` for a plan that no controller with so many units can have written.
void check_plan(const PlanState& plan, std::size_t units);

/// Whether a gate can have been given this limit of an error: not NaN, and not negative.
inline bool is_error_limit(float limit) { return limit >= 0; }

/// What loading a state did besides taking over histories.
struct RestoreReport {
  std::vector<std::string> unknown_units;   // in the state, not in this controller: dropped
  std::vector<std::string> new_units;       // in this controller, not in the state: they start afresh
  std::vector<std::string> released_units;  // recoveries that no longer fit
  bool beta_changed = false;                // means start afresh
  bool noise_beta_changed = false;          // usual changes start afresh
  bool window_changed = false;
  bool error_beta_changed = false;  // usual errors start afresh
  bool sites_changed = false;       // likewise

  /// Whether the state was taken over without any change.
  bool exact() const {
    return unknown_units.empty() && new_units.empty() && released_units.empty() && !beta_changed &&
           !noise_beta_changed && !window_changed && !error_beta_changed && !sites_changed;
  }
};

}  // namespace gnmr
