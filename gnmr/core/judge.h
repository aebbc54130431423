// SPDX-License-Identifier: Apache-2.0
// Alarm, trial, verdict: what is to be done with a step before its update, and which units go to recovery.
//
// The section "Recovery that hits the right unit" of docs/algorithm.md. It owns a `Controller`, whose norms say *that*
// something is wrong; errors of low paths say where.
//
//   Judge judge(units, options, {.places = 3, .expected = {...}, .can_rerun = true});
//   each step: const Hearing& hearing = judge.hear({.step = t, .norms = norms}, patrol_errors);
//     trial:   run the step again, all high, each low path measured beside it;
//              judge.conclude({.step = t, .norms = norms of the rerun}, errors); the update takes the rerun's gradient
//     replay:  judge.decide(), then run the step again with the units of the decision high
//     hold:    judge.decide(), no update
//     proceed: judge.decide(), scaled by hearing.clip where that is not empty
//
// Goals: the policy once, for every backend; no allocation in a step. Non-goals: measuring, rerunning, files. It belongs
// to one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gnmr/core/controller.h"

namespace gnmr {

/// Who says which units go to recovery.
enum class Selector : std::uint8_t { automatic = 0, norms = 1, evidence = 2, evidence_after_alarm = 3, trial = 4 };

/// What protects the update of an alarmed step where no trial does.
enum class Guard : std::uint8_t { none = 0, clip = 1, skip = 2, replay = 3 };

/// What is to be done with the step before its update.
enum class Action : std::uint8_t { proceed, hold, replay, trial };

/// What a trial found.
enum class Verdict : std::uint8_t {
  none,     // there was no trial
  numeric,  // units' low paths stand out
  common,   // high precision shows the same: data or optimizer
  gone,     // the low path no longer shows it: a race or hardware
};

/// `"none"`, `"numeric"`, `"common"` or `"gone"`.
const char* to_string(Verdict verdict);

/// What a backend can measure.
struct JudgeSettings {
  std::uint32_t places = 1;              // errors a unit, 1 to 16
  std::vector<double> expected = {};     // the format's own error of each place, 0: not known; empty: none is known
  bool can_rerun = false;                // whether the caller can run a step again; without, no trial and no replay
};

/// What was found after the norms of a step; views are valid until the next `hear`.
struct Hearing {
  std::int64_t step = 0;
  Action action = Action::proceed;
  bool alarmed = false;      // norms or patrol
  bool dismissed = false;    // the norms' alarm was answered by a patrol of all units that found nothing
  bool spent = false;        // there would have been a rerun, but the cap is reached
  std::span<const UnitIndex> standing_out = {};  // of the patrol, ascending
  std::span<const double> clip = {};             // guard `clip`: one coefficient a unit; empty: 1 for all
};

/// The end of a step; views are valid until the next `hear`.
struct Ruling {
  Verdict verdict = Verdict::none;
  Decision decision = {};
  std::span<const UnitIndex> units = {};     // whose low paths stood out, ascending; of the trial, else of the patrol
  std::span<const double> errors = {};       // of these, the one that stands out most, beside `units`
  std::span<const double> excesses = {};     // error over its limit, beside `units`
  std::span<const std::uint8_t> places = {}; // of which place, beside `units`
};

/// What one place of one unit remembers of its errors.
struct ErrorState {
  std::uint32_t samples = 0;  // k
  double mean_sum = 0;        // m

  bool operator==(const ErrorState&) const = default;
};

/// The memory of a judge.
struct JudgeState {
  ControllerState controller;
  std::uint32_t places = 1;
  std::vector<ErrorState> errors;          // units times places, in the order of `controller.units`
  std::vector<std::uint32_t> reruns_ago;   // decisions since each rerun of the last 99, ascending; 0: in the last one

  bool operator==(const JudgeState&) const = default;
};

/// The controller with its trials.
class Judge {
 public:
  /// As `Controller`; an `Error` too for places or expected errors that make no sense, and for a selector or guard that
  /// needs reruns where there can be none.
  Judge(std::vector<Unit> units, const Options& options, const JudgeSettings& settings = {});
  Judge(Judge&&) noexcept;
  Judge& operator=(Judge&&) noexcept;
  ~Judge();

  /// Signals, alarm, and what is to be done. `patrol` is empty or has units times places errors, a unit's beside each
  /// other, NaN where nothing was measured. Throws `Error`, with no state changed, for a wrong number or a negative one.
  const Hearing& hear(const Observation& observation, std::span<const double> patrol = {});

  /// Decides without a trial; after the action `trial` this is what is done when the rerun failed.
  const Ruling& decide();

  /// Decides after a trial: its norms take the place of the alarmed ones.
  const Ruling& conclude(const Observation& rerun, std::span<const double> errors);

  /// Takes the step back: as if `hear` had not been called.
  void withdraw();

  const Controller& controller() const;

  /// What the norms of the last observation said (of the rerun, after a trial).
  const Alarm& alarm() const;

  /// The selector in force: never `automatic`.
  Selector selector() const;

  /// Reruns that may still be made in this step.
  std::uint32_t reruns_left() const;

  /// The limit of the last judged error of a place of a unit; NaN where none was judged.
  double error_limit(UnitIndex unit, std::uint32_t place) const;

  JudgeState save() const;
  RestoreReport restore(const JudgeState& state);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gnmr
