// SPDX-License-Identifier: Apache-2.0
// The controller: gradient norms in, units to recover out.
//
// One optimizer step is `observe` (signals and alarm; changes nothing), then `decide` (selection, budget, and the
// sample is committed); `step` is both. Between the two a caller may find out more and `decide_among` candidates of its
// own, or `withdraw` the observation and observe again; judge.h does so.
//
//   gnmr::Controller controller(units, options);
//   const gnmr::Decision& decision = controller.step({.step = 7, .norms = norms});
//   for (gnmr::UnitIndex unit : decision.recovered) run_high_precision(unit);
//
// Goals: exactly what docs/algorithm.md says, bit for bit on every machine; no allocation in a step; a step over
// 44,544 units in less time than copying 96 bytes a unit.
// Non-goals: threads (one controller belongs to one thread at a time), files, printing, knowing what a unit is. It
// knows norms only: the options `selector`, `guard`, `max_trials` and `error_...` are judge.h's.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "gnmr/core/options.h"
#include "gnmr/core/state.h"
#include "gnmr/core/types.h"

namespace gnmr {

/// Watches gradient norms and says which units are to run in high precision.
class Controller {
 public:
  /// Units in forward order. Throws `Error` for a name that is empty or twice, a cost below 1, a total cost above
  /// 2^53, options out of range, or a cost limit under which no unit fits.
  explicit Controller(std::vector<Unit> units, const Options& options = {});
  Controller(Controller&&) noexcept;
  Controller& operator=(Controller&&) noexcept;
  ~Controller();

  /// Signals and alarm of one step; changes no state. Throws `Error` for a wrong number of norms, a negative norm,
  /// or an observation that is still pending. The reference is valid until the next `observe` or `restore`. Views and
  /// signals of the step before end here, even where a negative norm is found.
  const Alarm& observe(const Observation& observation);

  /// Throws the `Error` that `observe` would throw for these numbers of norms, or a negative one.
  void check(const Observation& observation) const;

  /// Takes back the pending observation, if there is one.
  void withdraw();

  /// Decides on the pending observation and commits it: units at risk by their norms are the candidates. Throws `Error`
  /// where nothing is pending. Valid until the next `observe` or `restore`.
  const Decision& decide();

  /// As `decide`, with these candidates instead, ascending by unit; those that are not free are passed over. `common`
  /// is what the decision says of the step. Throws `Error` too where units do not ascend or a severity is NaN.
  const Decision& decide_among(std::span<const Candidate> candidates, bool common);

  /// `observe` and `decide`.
  const Decision& step(const Observation& observation);

  /// The signals of one unit in the last observation.
  Signals signals(UnitIndex unit) const;

  /// Whether the unit had a sample in the last observation, as `signals` says it.
  bool was_sampled(UnitIndex unit) const;

  /// The mean of the unit's norms so far, a pending one not included; 0 before the first.
  double mean_norm(UnitIndex unit) const;

  /// Whether the unit can be a candidate of the next decision: not forced, not in recovery, and a wait is over.
  bool is_free(UnitIndex unit) const;

  /// Whether a norm of 0 counts as no sample of the unit.
  bool is_zero_muted(UnitIndex unit) const;

  /// Decisions that the unit will still be in recovery for; 0: it is not in recovery.
  std::uint32_t steps_left(UnitIndex unit) const;

  const std::vector<Unit>& units() const;
  const Options& options() const;

  /// At most this many units are in recovery at one time.
  std::uint32_t max_recovered() const;

  /// Units in recovery cost at most this together.
  std::int64_t max_recovered_cost() const;

  /// The cost of all units that are not forced.
  std::int64_t total_cost() const;

  /// Decisions taken so far, over all resumed runs.
  std::uint64_t decisions() const;

  /// Everything that the next decisions depend on. A pending observation is not part of it.
  ControllerState save() const;

  /// Takes over a state: histories by unit name, current options win. Throws `Error`, unchanged, for a state that no
  /// controller can have written. A pending observation is withdrawn.
  RestoreReport restore(const ControllerState& state);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gnmr
