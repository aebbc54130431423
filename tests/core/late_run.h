// SPDX-License-Identifier: Apache-2.0
// A random run of a controller with lag 1 and the gate that runs beside a step, step by step; it may be saved and
// restored between any two steps.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "core/random_errors.h"
#include "core/random_run.h"
#include "core/run_step.h"
#include "gnmr/core/controller.h"
#include "gnmr/core/host_gate.h"
#include "gnmr/core/signal_rules.h"
#include "gnmr/kernels/signals_host.h"

namespace gnmr::testing {

/// The gate on the host, beside the reference of the gate on a device.
class RandomGate {
 public:
  explicit RandomGate(const Controller& controller)
      : units_(static_cast<std::uint32_t>(controller.units().size())),
        settings_(settings_of(controller)),
        signals_(units_, settings_),
        gate_(controller) {}

  bool closes(const NormArrays& arrays, std::span<const double> errors, const StepPlan& plan) {
    const StepReport report{.norms = arrays.norms, .sampled = arrays.sampled, .errors = errors};
    const bool held = plan.gate_flags.empty() ? false : gate_.holds(plan, report);
    signals_.set_flags(plan.gate_flags);
    const std::vector<std::uint8_t> patrol = patrol_of(errors, plan);
    const bool as_on_device = signals_
                                  .observe({.norms = arrays.norms.data(),
                                            .sampled = arrays.sampled.data(),
                                            .patrol = patrol.empty() ? nullptr : patrol.data()},
                                           plan.hold)
                                  .held != 0;
    if (!plan.gate_flags.empty()) {
      EXPECT_EQ(held, as_on_device) << "step " << plan.step;
    }
    return as_on_device;
  }

  /// Goes on with the histories of a controller.
  void load(const Controller& controller) {
    signals_.load(kernels::memory_of(controller.save(), settings_));
    gate_ = HostGate(controller);
  }

 private:
  /// What a device makes of the errors.
  std::vector<std::uint8_t> patrol_of(std::span<const double> errors, const StepPlan& plan) const {
    if (errors.empty() || plan.error_limits.empty()) return {};
    std::vector<std::uint8_t> patrol(units_, 0);
    for (std::size_t i = 0; i < errors.size(); ++i) {
      patrol[i * units_ / errors.size()] |= kernels::patrol_of_error(errors[i], plan.error_limits[i]);
    }
    return patrol;
  }

  static kernels::SignalSettings settings_of(const Controller& controller) {
    const Options& options = controller.options();
    const bool by_trial = controller.selector() == Selector::trial;
    return {.rules = signal_rules(options),
            .window = static_cast<std::uint32_t>(options.window),
            .alarm = {.common_share = options.common_share, .selector = by_trial ? Selector::trial : Selector::norms}};
  }

  std::uint32_t units_;
  kernels::SignalSettings settings_;
  kernels::HostSignals signals_;
  HostGate gate_;
};

/// Options that a controller takes with lag 1.
inline Options random_late_options(Random& random, Patrols patrols = Patrols::any) {
  Options options = random_options(random);
  if (patrols == Patrols::frequent) favour_standing(random, options);
  if (options.lock_steps < 2) options.lock_steps = 2;
  options.lag = 1;
  options.max_cost = 1;
  if (options.guard == Guard::clip) options.guard = random.pick({Guard::skip, Guard::replay, Guard::none});
  const bool by_errors = options.selector == Selector::evidence || options.selector == Selector::evidence_after_alarm;
  if (by_errors) options.guard = Guard::none;
  return options;
}

/// One step of a run, as it came out.
struct LateStep {
  PlannedStep plan;
  std::vector<std::optional<double>> norms;
  std::vector<double> errors;
  bool in_force = true;
  Completion done = Completion::complete;
  bool held = false;
};

/// Controller and gate.
class LateRun {
 public:
  LateRun(const std::vector<Unit>& units, const Options& options, const Backend& backend)
      : controller_(units, options, backend), gate_(controller_) {}

  const Controller& controller() const { return controller_; }

  /// Begins a step and runs it: whether its gate closed is in the step.
  const StepPlan& run(LateStep& step, std::int64_t number) {
    controller_.set_mode(step.in_force ? Mode::armed : Mode::watch);
    const StepPlan& plan = controller_.begin(number);
    step.plan = {.step = plan.step, .batch = plan.batch, .pass = plan.pass, .again = plan.again, .hold = plan.hold};
    if (step.done == Completion::rerun_failed && plan.pass != PassKind::trial) step.done = Completion::complete;
    if (step.done == Completion::dropped) step.norms.assign(step.norms.size(), std::nullopt);
    const bool dropped = step.done == Completion::dropped;
    step.held = gate_.closes(NormArrays(step.norms), dropped ? std::span<const double>() : step.errors, plan);
    return plan;
  }

  const Outcome& report(const LateStep& step) {
    if (step.done == Completion::dropped) return controller_.report({.step = step.plan.step, .done = step.done});
    const NormArrays arrays(step.norms);
    return controller_.report({.step = step.plan.step,
                               .norms = arrays.norms,
                               .sampled = arrays.sampled,
                               .errors = step.errors,
                               .done = step.done,
                               .held = step.held});
  }

  /// A report as it came.
  const Outcome& report(const StepReport& report) { return controller_.report(report); }

  /// Everything goes to a state and comes back; all steps that have begun must have been reported.
  void resume() {
    controller_ = clone(controller_);
    gate_.load(controller_);
  }

 private:
  Controller controller_;
  RandomGate gate_;
};

}  // namespace gnmr::testing
