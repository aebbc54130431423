// SPDX-License-Identifier: Apache-2.0
// A random run of a judge with a gate, the one that runs beside a step, step by step; it may be saved and restored
// between any two steps.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/random_errors.h"
#include "core/random_run.h"
#include "gnmr/core/judge_gated.h"
#include "gnmr/core/signal_rules.h"
#include "gnmr/kernels/signals_host.h"

namespace gnmr::testing {

/// The gate on the host, with what its plan tells it.
class RandomGate {
 public:
  explicit RandomGate(const Judge& judge)
      : units_(static_cast<std::uint32_t>(judge.controller().units().size())),
        settings_(settings_of(judge)),
        signals_(units_, settings_) {}

  /// What the gate knows of the units, as they are now.
  static std::vector<std::uint8_t> flags_of(const Controller& controller) {
    std::vector<std::uint8_t> flags;
    for (UnitIndex unit = 0; unit < controller.units().size(); ++unit) {
      const int free = controller.is_free(unit) ? kernels::unit_flag::kFree : 0;
      const int muted = controller.is_zero_muted(unit) ? kernels::unit_flag::kZeroMuted : 0;
      flags.push_back(static_cast<std::uint8_t>(free | muted));
    }
    return flags;
  }

  bool closes(const NormArrays& arrays, std::span<const std::uint8_t> flags, HoldRule rule) {
    signals_.set_flags(flags);
    const auto hold = static_cast<kernels::Hold>(rule);
    return signals_.observe({.norms = arrays.norms.data(), .sampled = arrays.sampled.data()}, hold).held != 0;
  }

  /// Goes on with what a controller remembers.
  void load(const ControllerState& state) { signals_.load(kernels::memory_of(state, settings_)); }

 private:
  static kernels::SignalSettings settings_of(const Judge& judge) {
    const Options& options = judge.controller().options();
    const kernels::Basis basis = judge.selector() == Selector::trial ? kernels::Basis::trial : kernels::Basis::norms;
    return {.rules = signal_rules(options),
            .window = static_cast<std::uint32_t>(options.window),
            .alarm = {.common_share = options.common_share, .basis = basis}};
  }

  std::uint32_t units_;
  kernels::SignalSettings settings_;
  kernels::HostSignals signals_;
};

/// Options that a judge with a gate takes.
inline Options random_gated_options(Random& random) {
  Options options = random_options(random);
  if (options.lock_steps < 2) options.lock_steps = 2;
  options.lag = 1;
  options.max_cost = 1;
  if (options.guard == Guard::clip) options.guard = random.pick({Guard::skip, Guard::replay, Guard::none});
  const bool by_errors = options.selector == Selector::evidence || options.selector == Selector::evidence_after_alarm;
  if (by_errors) options.guard = Guard::none;
  return options;
}

/// One step of a run, as it came out.
struct GatedStep {
  StepPlan plan;
  std::vector<std::optional<double>> norms;
  std::vector<double> errors;
  bool in_force = true;
  bool failed = false;
  bool held = false;
};

/// Judge, plans and gate.
struct GatedRun {
  GatedRun(const std::vector<Unit>& given, const Options& options, const JudgeSettings& backend)
      : units(given),
        settings(backend),
        judge(std::make_unique<Judge>(given, options, backend)),
        steps(std::make_unique<GatedSteps>(*judge)),
        gate(*judge) {}

  /// The plan, with what the gate is to know.
  void plan(std::int64_t step) {
    if (flags_of_step == step) return;
    steps->plan(step);
    flags = RandomGate::flags_of(judge->controller());
    flags_of_step = step;
  }

  /// Runs a step: whether its gate closed is told.
  void run(GatedStep& step, std::int64_t number) {
    plan(number);
    step.plan = steps->begin(number, step.in_force);
    step.failed = step.failed && step.plan.pass == PassKind::trial;
    if (step.failed) steps->trial_failed();
    step.held = gate.closes(NormArrays(step.norms), flags, step.plan.hold);
  }

  /// Everything goes to a state and comes back; all steps that have begun must have been decided.
  void resume() {
    auto fresh = std::make_unique<Judge>(units, judge->controller().options(), settings);
    fresh->restore(judge->save());
    auto fresh_steps = std::make_unique<GatedSteps>(*fresh);
    fresh_steps->restore(steps->state(), /*gated=*/true);
    gate.load(fresh->save().controller);
    steps = std::move(fresh_steps);
    judge = std::move(fresh);
  }

  std::vector<Unit> units;
  JudgeSettings settings;
  std::unique_ptr<Judge> judge;
  std::unique_ptr<GatedSteps> steps;
  RandomGate gate;
  std::vector<std::uint8_t> flags;
  std::int64_t flags_of_step = 0;
};

}  // namespace gnmr::testing
