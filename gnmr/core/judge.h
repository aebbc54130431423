// SPDX-License-Identifier: Apache-2.0
// Alarm, trial, verdict: what is to be done with a step before its update, and which units go to recovery.
//
// The section "Recovery that hits the right unit" of docs/algorithm.md. It owns a `Controller`, whose norms say *that*
// something is wrong; errors of low paths say where.
//
//   Judge judge(units, options, {.places = 3, .expected = {...}, .can_rerun = true});
//   each step: const Hearing& hearing = judge.hear({.step = t, .norms = norms}, patrol_errors);
//     trial:   run the step again, all high, each low path measured beside it; then
//              judge.conclude({.step = t, .norms = norms of the rerun}, errors); the update takes the rerun's gradient.
//              Where the rerun fails: as the others.
//     others:  const Ruling& ruling = judge.decide(); then as ruling.action says:
//              proceed: the update, scaled by ruling.clip where that is not empty
//              hold:    no update
//              replay:  run the step again with ruling.decision.recovered high; the update takes its gradient
//
// Goals: the policy once, for every backend; no allocation in a step. Non-goals: measuring, rerunning, files. It
// belongs to one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gnmr/core/controller.h"

namespace gnmr {

/// What is to be done with the step before its update.
enum class Action : std::uint8_t {
  proceed,  // the update as it is, or clipped
  hold,     // no update
  replay,   // run again with the units of the decision high
  trial,    // run again with all units high, errors measured
};

/// `"proceed"`, `"hold"`, `"replay"` or `"trial"`.
const char* to_string(Action action);

/// What a trial found.
enum class Verdict : std::uint8_t {
  none,       // there was no trial
  numeric,    // units' low paths stand out
  common,     // high precision shows the same: data or optimizer
  unlocated,  // high precision does not show it, and no unit's low path stands out
};

/// `"none"`, `"numeric"`, `"common"` or `"unlocated"`.
const char* to_string(Verdict verdict);

/// What a backend can measure.
struct JudgeSettings {
  std::uint32_t places = 1;           // errors a unit, 1 to kMostPlaces
  std::vector<double> expected = {};  // the format's own error of each place, 0: not known; empty: none is known
  bool can_rerun = false;             // whether the caller can run a step again; without, no trial and no replay
};

/// What was found after the norms of a step; views are valid until the next `hear`.
struct Hearing {
  std::int64_t step = 0;
  Action action = Action::proceed;  // `replay` only if somebody is admitted: the ruling knows
  bool alarmed = false;             // norms or patrol
  bool dismissed = false;           // the norms' alarm was answered by a patrol of all units that found nothing
  bool spent = false;               // there would have been a rerun, but the cap is reached
  std::span<const UnitIndex> standing_out = {};  // of the patrol, ascending; units in recovery are left out
  std::span<const double> clip = {};             // guard `clip`: one coefficient a unit; empty: 1 for all
};

/// The end of a step; views are valid until the next `hear`.
struct Ruling {
  Verdict verdict = Verdict::none;
  Action action = Action::proceed;    // what is to be done with the update now; never `trial`
  std::span<const double> clip = {};  // guard `clip`: one coefficient a unit; empty: 1 for all
  Decision decision = {};
  std::span<const UnitIndex> units = {};      // whose low paths stood out, ascending; of the trial, else of the patrol
  std::span<const double> errors = {};        // of these, the one that stands out most, beside `units`
  std::span<const double> excesses = {};      // error over its limit, beside `units`
  std::span<const std::uint8_t> places = {};  // of which place, beside `units`
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
  /// other, NaN where nothing was measured. `may_rerun` false: the caller only watches, and no rerun is asked for, as
  /// if the cap were reached. Throws `Error`, with no state changed, for a wrong number or a negative one.
  const Hearing& hear(const Observation& observation, std::span<const double> patrol = {}, bool may_rerun = true);

  /// Decides without a trial; after the action `trial` this is what is done when the rerun failed: as if the cap had
  /// been reached, but it counts as a rerun. Throws `Error` where no step has been heard.
  const Ruling& decide();

  /// Decides after a trial: its norms and errors take the place of the alarmed ones. Throws `Error`, with no state
  /// changed and the step still heard, where no trial was asked for, for another step, and as `hear`.
  const Ruling& conclude(const Observation& rerun, std::span<const double> errors);

  /// Takes the step back: as if `hear` had not been called. Nothing where no step has been heard.
  void withdraw();

  /// Decides with no candidates, whatever was heard; it is no rerun. Throws `Error` where no step has been heard.
  const Ruling& pass_over();

  /// Decides a step whose first run was a trial: `hear` and `conclude` in one, with no alarm before it. Throws `Error`,
  /// with no state changed, where a step has been heard, and as `hear`.
  const Ruling& conclude_alone(const Observation& trial, std::span<const double> errors);

  /// The last decision counts as one that had a rerun.
  void count_rerun();

  const Controller& controller() const;

  /// What the norms of the last observation said (of the rerun, after a trial).
  const Alarm& alarm() const;

  /// The selector in force: never `automatic`.
  Selector selector() const;

  Guard guard() const;

  /// Reruns that the next step that is heard could have; 0: the cap is reached.
  std::uint32_t reruns_left() const;

  /// The limit of an error that was judged last (the trial's, else the patrol's of the last step); NaN where it was not
  /// measured.
  double error_limit(UnitIndex unit, std::uint32_t place) const;

  /// Everything that the next steps depend on. A step that has been heard is not part of it.
  JudgeState save() const;

  /// As `Controller::restore`; error histories start afresh where `error_beta` or the places changed.
  RestoreReport restore(const JudgeState& state);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gnmr
