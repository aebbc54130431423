// SPDX-License-Identifier: Apache-2.0
// Steps of a run whose host hears of each one a step late: what the next step is, what its gate may hold, what comes
// again. The section "With a gate: lag 1" of docs/algorithm.md.
//
//   GatedSteps steps(judge);
//   each step t: const StepPlan& plan = steps.begin(t, in_force);   // batch, how it runs, what its gate may do
//                ... the pass of plan.batch; the gate; the update, if the gate is open ...
//                steps.hear({.step = t - 1, ...}, errors, held);    // its numbers have come meanwhile
//                const Ruling& ruling = steps.decide();
//
// Goals: the same plans and decisions whenever a step is heard, as long as the next one has been planned before it.
// Non-goals: the gate itself (it stands where the norms are: gnmr/kernels/signals.h, gnmr/train/step_gate.h), running,
// files. It belongs to one thread at a time, and the judge must outlive it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gnmr/core/judge.h"

namespace gnmr {

/// How the batch of a step runs.
enum class PassKind : std::uint8_t {
  step,    // as the decisions say
  replay,  // likewise, and never held: the batch was held, and its units have been decided on since
  trial,   // all units high, each low path measured beside it; never held
};

/// What may close the gate of a step.
enum class HoldRule : std::uint8_t {
  never,
  for_trial,  // a free unit at risk, or a non-finite risk of any unit; the norms of a held step are forgotten
  for_guard,  // a free unit at risk, unless the step is common; the norms are remembered
};

/// What a step is, before it runs.
struct StepPlan {
  std::int64_t step = 0;
  std::int64_t batch = 0;  // from 1; random numbers and data go by it
  PassKind pass = PassKind::step;
  bool again = false;  // the batch has run before, and was held
  HoldRule hold = HoldRule::never;

  bool operator==(const StepPlan&) const = default;
};

/// A batch that was held.
struct WaitingBatch {
  std::int64_t batch = 0;
  PassKind pass = PassKind::trial;

  bool operator==(const WaitingBatch&) const = default;
};

/// A step that has been planned and not yet decided.
struct UndecidedStep {
  StepPlan plan = {};
  bool may_rerun = false;  // it is a rerun, or its gate may bring one about
  bool begun = false;
  bool in_force = true;  // false: the caller only watched
  bool failed = false;   // it was to be a trial, for which there was no memory

  bool operator==(const UndecidedStep&) const = default;
};

/// Everything that the next plans depend on, beside the judge's state.
struct GatedState {
  std::int64_t next_batch = 0;  // the next fresh one; 0: the number of the first step that is planned
  std::vector<WaitingBatch> waiting = {};
  bool called = false;                        // the next step that is planned is a trial
  std::vector<UndecidedStep> undecided = {};  // in the order of their steps, at most two

  bool operator==(const GatedState&) const = default;
};

/// Plans, hears and decides.
class GatedSteps {
 public:
  explicit GatedSteps(Judge& judge);

  /// Throws `Error` where lag is 1 and the guard would need the host before the update.
  static void check(const Options& options);

  /// A batch for a step of a run without a gate: the oldest that an earlier run with one has held, else a fresh one.
  std::int64_t take_batch(std::int64_t step);

  /// Decides what the step is, where that has not been done; to be called after the decision of the step before the
  /// last one, and before that of the last. Throws `Error` for a step that does not follow.
  const StepPlan& plan(std::int64_t step);

  /// `plan`, and the step begins. `in_force` false: the caller only watches; it is a plain step, and nothing holds it.
  const StepPlan& begin(std::int64_t step, bool in_force);

  /// The step that has begun last was to be a trial, and ran as a plain step for want of memory.
  void trial_failed();

  /// Takes the numbers of the oldest step that is not decided; its errors are a patrol's, or the trial's where it is
  /// one. Of a held step `action` says what for: `trial` or `replay`, and its batch comes again, or `hold`. Throws
  /// `Error`, with no state changed, for another step, where the step after it has not been planned, for one that could
  /// not be held, and as `Judge::hear`.
  const Hearing& hear(const Observation& observation, std::span<const double> errors, bool held);

  /// Decides the step that was heard. `action` is as that of the hearing.
  const Ruling& decide();

  /// Whether the step that was heard last made the next one that is planned a trial.
  bool calls() const { return calls_; }

  /// The step that is heard next, if one has been planned.
  const UndecidedStep* next_to_hear() const { return state_.undecided.empty() ? nullptr : &state_.undecided.front(); }

  const GatedState& state() const { return state_; }

  /// Takes over a state, of which `plan` goes on; without a gate batches that were planned are taken first.
  void restore(const GatedState& state, bool gated);

 private:
  bool rerun_may_be(std::size_t first_undecided) const;
  HoldRule hold_rule(bool may_rerun) const;
  bool brings_rerun(const StepPlan& plan) const;
  void hear_free(const UndecidedStep& step);

  Judge& judge_;
  GatedState state_;
  std::vector<double> no_norms_;  // of a step in which no unit has a sample
  std::vector<std::uint8_t> no_samples_;

  // The step that is being heard.
  bool heard_ = false;
  bool passes_over_ = false;
  bool calls_ = false;
  Hearing hearing_;
  Ruling ruling_;
};

}  // namespace gnmr
