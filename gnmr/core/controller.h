// SPDX-License-Identifier: Apache-2.0
// The controller: what a step measured goes in; what to do with its update, and which units run high, comes out.
//
//   gnmr::Controller controller(units, options, {.can_rerun = true, .sites = 3, .expected_errors = {...}});
//   for (step = 1; ...; ++step) {
//     const gnmr::Outcome* outcome;
//     do {
//       const gnmr::StepPlan& plan = controller.begin(step);  // which batch, which path per unit, a trial or not
//       ... forward and backward as the plan says ...
//       outcome = &controller.report({.step = step, .norms = norms, .errors = errors});
//     } while (outcome->action == gnmr::Action::rerun);       // the same batch again: a trial or a replay
//     if (outcome->action == gnmr::Action::apply) ... the update, scaled by outcome->clip ...
//   }
//
// With lag 1 the host does not wait for a step: it begins and queues step t, then reports step t - 1. A step that the
// gate held is not run again at once; its batch comes back from `begin` in a later step. The loop is the same but for
// the order of the two calls.
//
// Goals: exactly what docs/algorithm.md says, bit for bit on every machine; no allocation in a step; a calm step over
// 44,544 units in less time than copying 96 bytes per unit.
// Non-goals: measuring, running, files, printing, knowing what a unit is. A controller belongs to one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gnmr/core/options.h"
#include "gnmr/core/state.h"
#include "gnmr/core/step.h"
#include "gnmr/core/types.h"

namespace gnmr {

/// Throws the `Error` that a controller with these options and this backend would throw, whatever its units.
void check_options(const Options& options, const Backend& backend);

/// Why the value of an option changes nothing with this backend and the other options; empty: it has an effect.
std::string why_without_effect(std::string_view option, const Options& options, const Backend& backend);

/// Throws an `Error` for the first of these options, which the caller set itself, that has no effect.
void refuse_without_effect(const Options& options, const Backend& backend, std::span<const std::string> named);

/// Decides which units run in high precision.
class Controller {
 public:
  /// Units in forward order. Throws `Error` for a name that is empty or twice, a cost below 1, a total cost above
  /// 2^53, options out of range, a cost limit under which no unit fits, and for a selector, guard or lag that the
  /// backend cannot follow. What only has no effect is no error here: ask `refuse_without_effect` first.
  explicit Controller(std::vector<Unit> units, const Options& options = {}, const Backend& backend = {});
  Controller(Controller&&) noexcept;
  Controller& operator=(Controller&&) noexcept;
  ~Controller();

  /// The step before it runs. After `Action::rerun` with lag 0 the same step begins again, as the rerun. A step that
  /// has begun and was not reported may begin again, with the same plan; with lag 0 it is dropped without a decision
  /// where another begins. Throws `Error` for another step while a rerun is due, with lag 1 for a step that does not
  /// follow.
  const StepPlan& begin(std::int64_t step);

  /// What the step that has begun measured; with lag 1, the oldest that has begun and is not decided. Throws `Error`
  /// with no state changed (but for `signals`) for a step that did not begin, a wrong number of norms or errors, or a
  /// negative one.
  const Outcome& report(const StepReport& report);

  /// From the next step on: a rerun that is due runs as it was asked for. The mode is not part of the state.
  void set_mode(Mode mode);
  Mode mode() const;

  /// The signals of a unit by the norms that were reported last.
  Signals signals(UnitIndex unit) const;

  /// The mean of the unit's norms so far; 0 before the first.
  double mean_norm(UnitIndex unit) const;

  /// The limit of an error that was reported last and counted; NaN where it was not measured.
  double error_limit(UnitIndex unit, std::uint32_t site) const;

  /// The error that the unit's level at a site stands for (docs/algorithm.md, "Levels"); NaN where it is not known.
  double usual_error(UnitIndex unit, std::uint32_t site) const;

  /// Decisions that the unit will still be in recovery for, of a standing recovery until the next review; 0: it is not
  /// in recovery.
  std::uint32_t steps_left(UnitIndex unit) const;

  /// The units in recovery by the last decision, ascending. Valid until the next report.
  std::span<const UnitIndex> recovered() const;

  /// Of these, the ones in standing recovery.
  std::span<const UnitIndex> standing() const;

  /// How many more reruns the limit leaves in the current hundred steps, at once or after a wait.
  std::uint32_t reruns_left() const;

  /// Whether the next decision could have a rerun (lag 0): reruns are spread over these steps.
  bool rerun_may_be() const;

  const std::vector<Unit>& units() const;
  const Options& options() const;
  const Backend& backend() const;

  /// The selector in force: never `automatic`.
  Selector selector() const;

  /// The guard in force.
  Guard guard() const;

  /// At most this many units are in recovery at one time.
  std::uint32_t max_recovered() const;

  /// Units in recovery cost at most this together.
  std::int64_t max_recovered_cost() const;

  /// The cost of all units that are not forced.
  std::int64_t total_cost() const;

  /// Decisions taken so far, over all resumed runs.
  std::uint64_t decisions() const;

  /// Everything that the next decisions depend on, but for the plan. A step that waits for its rerun is not part of it.
  ControllerState save() const;

  /// What the next plans depend on besides.
  const PlanState& plan_state() const;

  /// Takes over a state: histories by unit name, current options win; error histories start afresh where `error_beta`
  /// or the number of sites changed. Throws `Error`, unchanged, for a state or plan that no controller can have
  /// written. `units()` and its names stay where they are.
  RestoreReport restore(const ControllerState& state, const PlanState& plan = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gnmr
