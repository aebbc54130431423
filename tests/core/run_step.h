// SPDX-License-Identifier: Apache-2.0
// One step of a controller in one call, and a controller that starts from the state of another.
#pragma once

#include <utility>
#include <vector>

#include "gnmr/core/controller.h"

namespace gnmr::testing {

/// A controller that knows norms only.
inline Controller norms_controller(std::vector<Unit> units, const Options& options = {}) {
  return Controller(std::move(units), options, norms_only());
}

/// Begins a step, or its rerun, and reports it.
inline const Outcome& run_step(Controller& controller, const StepReport& report) {
  controller.begin(report.step);
  return controller.report(report);
}

/// The step waits for its rerun as a trial.
inline bool wants_trial(const Outcome& outcome) {
  return outcome.action == Action::rerun && outcome.rerun == PassKind::trial;
}

/// A controller in the same state.
inline Controller clone(const Controller& controller) {
  Controller other(controller.units(), controller.options(), controller.backend());
  other.restore(controller.save(), controller.plan_state());
  return other;
}

}  // namespace gnmr::testing
