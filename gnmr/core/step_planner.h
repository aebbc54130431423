// SPDX-License-Identifier: Apache-2.0
// Which batch a step takes, how it runs, and what its gate may hold: section "With a gate: lag 1" of docs/algorithm.md.
// Without a gate (lag 0) only batches matter, and a step is its own batch unless an earlier run with lag 1 left some.
//
// Goals: the same plans whenever a step is reported, as long as the next one has been planned before. No allocation in
// a step. Non-goals: what norms and errors say (controller.h).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "gnmr/core/budget.h"
#include "gnmr/core/options.h"
#include "gnmr/core/rerun_window.h"
#include "gnmr/core/state.h"
#include "gnmr/core/step.h"

namespace gnmr {

/// What a plan depends on besides the plans before it.
struct PlanRules {
  Selector selector = Selector::norms;
  Guard guard = Guard::none;
  bool can_hold = true;
};

/// The two limits on reruns.
struct RerunRoom {
  const RerunWindow& window;
  const Budget& budget;

  /// Whether one more is within both, where so many are to come besides.
  bool allows(std::uint32_t to_come = 0) const { return window.allows(to_come) && budget.can_pay_rerun(to_come); }
};

/// Throws `Error` where lag is 1 and the guard needs the host before the update.
void check_guard_with_lag(const Options& options, const PlanRules& rules);

/// Batches, and with lag 1 the steps that are planned and not decided.
class StepPlanner {
 public:
  explicit StepPlanner(const PlanRules& rules);

  /// Lag 0: the batch of a step: the oldest that waits, else a fresh one.
  std::int64_t take_batch(std::int64_t step);

  /// Lag 1: plans the step unless that has been done; whether it was planned now. To be called after the decision of
  /// the step before the last one, and before that of the last. Throws `Error` for a step that does not follow.
  bool plan(std::int64_t step, const RerunRoom& reruns);

  /// Lag 1: the planned step begins. Unless `armed` it is a plain step that nothing holds.
  const PlannedStep& begin(std::int64_t step, bool armed);

  /// Lag 1: the oldest step that is not decided; null: none.
  PlannedStep* oldest() { return state_.undecided.empty() ? nullptr : &state_.undecided.front(); }
  const PlannedStep* oldest() const { return state_.undecided.empty() ? nullptr : &state_.undecided.front(); }

  /// Lag 1: the step that was planned last.
  const PlannedStep* last() const { return state_.undecided.empty() ? nullptr : &state_.undecided.back(); }

  /// Lag 1: whether the oldest step can call a trial within the limit of reruns.
  bool can_call(const RerunRoom& reruns) const { return reruns.allows(to_come_besides()); }

  /// Lag 1: reruns that may come of the batches that wait, and of the steps after the oldest that is not decided.
  std::uint32_t to_come_besides() const { return to_come(1); }

  /// Lag 1: the oldest step is decided. Its batch comes back as `again`, unless that is `step`.
  void decided(PassKind again, bool calls_trial);

  const PlanState& state() const { return state_; }

  /// Lag 1: what a plan knows of the units; the caller fills it when `plan` has planned a step.
  PlanState& known_units() { return state_; }

  /// Takes over a state. With lag 0 batches that were planned are taken first. `released`: units, ascending, that no
  /// longer fit the budget.
  void restore(const PlanState& state, int lag, std::span<const UnitIndex> released);

 private:
  std::uint32_t to_come(std::size_t first_undecided) const;
  HoldRule hold_rule(bool may_rerun) const;
  bool brings_rerun(const PlannedStep& step) const;

  PlanRules rules_;
  PlanState state_;
};

}  // namespace gnmr
