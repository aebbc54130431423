// SPDX-License-Identifier: Apache-2.0
// The gate of a caller with lag 1 on the host: it judges norms and errors of a step before its update, while the step
// before is not decided. "With a gate" in docs/algorithm.md.
//
//   gnmr::HostGate gate(controller);                          // before the first step, or after a restore
//   const gnmr::StepPlan& plan = controller.begin(t);
//   ... forward and backward ...
//   const bool held = gate.holds(plan, {.step = t, .norms = norms, .errors = errors});  // in every step, in order
//   if (!held) ... the update ...
//   ... controller.report({.step = t - 1, ...}), and later {.step = t, ..., .held = held} ...
//
// Goals: the same numbers and plans close it as close the gate on a device. Non-goals: decisions.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "gnmr/core/controller.h"

namespace gnmr {

/// Histories of the norms of all steps that were run, one step ahead of the controller's.
class HostGate {
 public:
  /// Goes on with the controller's histories: all steps so far must have been decided.
  explicit HostGate(const Controller& controller);
  HostGate(HostGate&&) noexcept;
  HostGate& operator=(HostGate&&) noexcept;
  ~HostGate();

  /// Whether the update of the planned step is held, by norms, samples and errors of its report; the other members are
  /// not read. Takes the norms into the histories, unless it holds the step for a trial. Throws `Error` for a wrong
  /// number of norms, errors, flags or limits, or a negative norm or error; no history has changed then.
  bool holds(const StepPlan& plan, const StepReport& report);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gnmr
