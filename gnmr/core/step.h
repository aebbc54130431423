// SPDX-License-Identifier: Apache-2.0
// The protocol of one optimizer step: what `Controller::begin` returns, what `Controller::report` takes and returns.
//
// Goals: the same structs for every caller: a trainer that waits for the norms of a step (lag 0) or does not (lag 1),
// Python, C, the replay of a log. Non-goals: how a batch runs, how anything is measured.
//
// Some fields are reserved: a caller that fills one of them gets an `Error`, never a silent default.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "gnmr/core/gate_rule.h"
#include "gnmr/core/types.h"

namespace gnmr {

/// What a backend can do, and what it measures.
struct Backend {
  bool can_rerun = false;   // a step can run again before its update; without: neither trial nor replay
  bool can_hold = true;     // `Outcome::action` and `clip` are followed; without: no guard. With lag 1 also: there is a
                            // gate that follows `StepPlan::hold` (host_gate.h, say); a caller without one says false,
                            // else alarms that the gate should have raised are lost
  std::uint32_t sites = 1;  // errors per unit, up to kMostSites; 0: no errors, and the selector is `norms`
  std::vector<double> expected_errors = {};  // the format's own error per site, 0: unknown; empty: none is known
};

/// A backend of which only norms are known: a log that is replayed, say.
inline Backend norms_only() { return {.can_rerun = false, .can_hold = false, .sites = 0}; }

/// Whether decisions are carried out.
enum class Mode : std::uint8_t {
  armed,  // recoveries, trials and guards take effect
  watch,  // decisions are made, nothing is switched, held or run again
  high,   // as `watch`, and every unit runs high
};

/// `"armed"`, `"watch"` or `"high"`.
const char* to_string(Mode mode);

/// How the batch of a step runs.
enum class PassKind : std::uint8_t {
  step,    // as the decisions say
  replay,  // likewise, with the units high that its first run got admitted; never held
  trial,   // all units high, each low path measured beside it; never held
};

/// `"step"`, `"replay"` or `"trial"`.
const char* to_string(PassKind pass);

/// The path of a unit in a step.
inline constexpr std::uint8_t kLowPath = 0;
inline constexpr std::uint8_t kHighPath = 255;

/// A step before it runs. Views are valid until the next call of the controller.
struct StepPlan {
  std::int64_t step = 0;
  std::int64_t batch = 0;  // from 1; data and random numbers go by it
  PassKind pass = PassKind::step;
  bool again = false;  // the batch has run before: in this step (lag 0), or in one that was held (lag 1)
  HoldRule hold = HoldRule::never;
  Mode mode = Mode::armed;
  std::span<const std::uint8_t> path = {};        // per unit: kLowPath or kHighPath
  std::span<const UnitIndex> recovered = {};      // of these, the units in recovery, ascending
  std::span<const UnitIndex> measure = {};        // of these, the ones whose low path is to be measured beside it
  std::span<const std::uint8_t> gate_flags = {};  // lag 1: per unit, gate_flag
  std::span<const float> error_limits = {};       // likewise: units x sites, for its errors; empty: it has none
};

/// How a run of a step ended.
enum class Completion : std::uint8_t {
  complete,
  rerun_failed,  // the trial or replay that the plan asked for failed; at lag 1 its batch ran as a plain step instead
  dropped,       // there are no numbers (a loss scaler skipped it, say): no unit has a sample; not of a rerun at lag 0
};

/// What a run of a step measured. Views are read during `report` only.
struct StepReport {
  std::int64_t step = 0;
  NormSpan norms = {};                         // L2 norm per unit, before clipping
  std::span<const std::uint8_t> sampled = {};  // per unit, 0: no sample; empty: every unit has one
  std::span<const double> errors = {};         // units x sites, NaN: not measured; empty: none was
  Completion done = Completion::complete;
  bool may_rerun = true;                      // whether this step can run again; false only with lag 0
  bool held = false;                          // lag 1: the gate held the update
  std::span<const std::int64_t> tokens = {};  // reserved, must be empty: tokens per unit
  std::span<const float> scale_fit = {};      // reserved, must be empty: amax over what the scale can represent
};

/// What to do with the update of the reported run.
enum class Action : std::uint8_t {
  apply,  // make it, scaled by `Outcome::clip`
  hold,   // make none
  rerun,  // make none: `begin` returns the batch again, at once with lag 0, in a later step with lag 1
};

/// `"apply"`, `"hold"` or `"rerun"`.
const char* to_string(Action action);

/// What a trial found.
enum class Verdict : std::uint8_t {
  none,       // there was no trial
  numeric,    // errors of low paths are above their limits
  common,     // high precision shows the same: data or optimizer
  unlocated,  // high precision does not show it, and no error is above its limit
};

/// `"none"`, `"numeric"`, `"common"` or `"unlocated"`.
const char* to_string(Verdict verdict);

/// A unit with an error above its limit: the site where it is highest above.
struct Finding {
  UnitIndex unit = 0;
  std::uint8_t site = 0;
  double error = 0;
  double excess = 0;  // error over its limit, above 1
};

/// What a report came to. Views are valid until the next call of the controller.
struct Outcome {
  std::int64_t step = 0;                          // of the report
  std::optional<std::int64_t> decided_step = {};  // none: the decision waits for the rerun of this step
  std::int64_t in_force_from = 0;                 // the first step in which the decision holds
  Action action = Action::apply;
  PassKind rerun = PassKind::step;  // with Action::rerun: what the batch comes back as
  Verdict verdict = Verdict::none;
  bool alarmed = false;                    // by norms or errors, or held for either
  bool dismissed = false;                  // a patrol of all units found nothing to confirm the alarm of the norms
  bool spent = false;                      // a rerun was due, but a limit did not allow it, or no place was free
  bool capped = false;                     // `max_high_share` denied the rerun, or a unit that had room otherwise
  bool called = false;                     // lag 1: errors that passed the gate made the next planned step a trial
  std::span<const double> clip = {};       // guard `clip`: coefficient per unit; empty: 1 for all
  std::span<const Finding> findings = {};  // of the trial, else of the patrol; units ascend
  Alarm alarm = {};                        // what the reported norms say
  Decision decision = {};
};

}  // namespace gnmr
