// SPDX-License-Identifier: Apache-2.0
// A controller of the core on random norms and errors, and what a device that watches the same run must find.
//
// Goals: the host's reference and the device's kernels are compared with the core by the same steps.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/random_errors.h"
#include "core/random_run.h"
#include "core/run_step.h"
#include "gnmr/core/signal_rules.h"
#include "gnmr/kernels/signals.h"

namespace gnmr::kernels::testing {

using gnmr::testing::NormArrays;
using gnmr::testing::Random;
using gnmr::testing::RandomErrors;
using gnmr::testing::RandomRun;

inline SignalSettings settings_of(const Options& options, Selector selector) {
  return {.rules = signal_rules(options),
          .window = static_cast<std::uint32_t>(options.window),
          .alarm = {.common_share = options.common_share, .selector = selector}};
}

/// Whether the next decision is one of those in which only what is severe or infinite calls a trial.
inline bool is_early(const Controller& controller) {
  const auto warmup = static_cast<std::uint64_t>(controller.options().warmup_samples);
  return controller.selector() == Selector::trial && 2 * controller.decisions() < 3 * warmup;
}

/// Whether acute recoveries have the whole budget for longer than the next decision: then errors call no trial.
inline bool is_full(const Controller& controller) {
  const ControllerState state = controller.save();
  const auto lasts = [](const UnitState& unit) {
    return unit.in_recovery && !is_standing(unit.admitted_for) && unit.steps_left > 1;
  };
  const auto taken = std::count_if(state.units.begin(), state.units.end(), lasts);
  return taken > 0 && static_cast<std::uint32_t>(taken) >= controller.max_recovered();
}

/// What a gate knows of the units before the next step.
inline std::vector<std::uint8_t> flags_of(const Controller& controller) {
  const ControllerState state = controller.save();
  std::vector<std::uint8_t> flags;
  for (UnitIndex unit = 0; unit < state.units.size(); ++unit) {
    const UnitState& known = state.units[unit];
    const bool free = !controller.units()[unit].forced && !known.in_recovery && known.wait_steps == 0;
    const int doubt =
        is_early(controller) ? gate_flag::kDoubt : std::countr_zero(state.doubt.value) << gate_flag::kDoubtShift;
    flags.push_back(static_cast<std::uint8_t>((free ? gate_flag::kFree : 0) |
                                              (known.zero_muted ? gate_flag::kZeroMuted : 0) | doubt));
  }
  return flags;
}

/// The same memory with every ring turned so that its spare slot is the first, and nothing in it.
inline SignalMemory turned(const SignalMemory& memory, std::uint32_t window) {
  SignalMemory result = memory;
  const std::size_t units = memory.counts.size() / 2;
  const std::size_t slots = std::size_t{window} + 1;
  for (std::size_t unit = 0; unit < units; ++unit) {
    const std::size_t spare = memory.counts[units + unit];
    for (std::size_t slot = 0; slot < slots; ++slot) {
      const std::size_t from = (spare + slot) % slots * units + unit;
      result.ratios[slot * units + unit] = slot == 0 ? 0.0 : memory.ratios[from];
      result.inverses[slot * units + unit] = slot == 0 ? 0.0 : memory.inverses[from];
    }
    result.counts[units + unit] = 0;
  }
  return result;
}

/// What a device is given in one observation, and what it must find.
struct WatchedStep {
  std::vector<double> norms = {};
  std::vector<std::uint8_t> sampled = {};
  std::vector<std::uint8_t> flags = {};
  std::vector<std::uint8_t> patrol = {};  // empty: none
  HoldRule hold = HoldRule::never;

  std::vector<RiskKind> risks = {};
  std::vector<double> severities = {};
  gnmr::Alarm alarm = {};
  bool is_rerun = false;  // then `alarmed` and `held` mean nothing
  bool alarmed = false;
  bool held = false;

  SignalInputs inputs() const {
    return {.norms = norms.data(), .sampled = sampled.data(), .patrol = patrol.empty() ? nullptr : patrol.data()};
  }
};

/// The first thing in which an answer differs from what the core found; empty: nothing.
inline std::string difference(const WatchedStep& step, const StepAlarm& alarm, const std::vector<RiskKind>& risks,
                              const std::vector<double>& severities) {
  if (alarm.centre != step.alarm.centre) return "centre";
  if (alarm.counts.sampled != step.alarm.sampled) return "sampled";
  if (alarm.counts.sampled - alarm.counts.non_finite != step.alarm.finite) return "finite";
  if ((alarm.common != 0) != step.alarm.common) return "common";
  if (alarm.counts.non_finite + alarm.counts.finite_risks != step.alarm.risks.size()) return "risks";
  if (risks != step.risks) return "kinds of risk";
  if (severities != step.severities) return "severities";
  if (step.is_rerun) return alarm.held != 0 ? "held" : "";
  if ((alarm.alarmed != 0) != step.alarmed) return "alarmed";
  if ((alarm.held != 0) != step.held) return "held";
  return "";
}

/// A run of random units with lag 0, step by step, reruns included.
class JudgedRun {
 public:
  explicit JudgedRun(std::uint64_t seed)
      : random_(seed),
        units_(gnmr::testing::random_units(random_, 3 + random_.below(60))),
        controller_(units_, options(random_), {.can_rerun = true, .sites = kSites, .expected_errors = {0.02, 0.0}}),
        norms_(random_, units_.size()),
        errors_(random_, units_.size(), kSites) {}

  std::uint32_t units() const { return static_cast<std::uint32_t>(units_.size()); }
  SignalSettings settings() const { return settings_of(controller_.options(), controller_.selector()); }

  /// The memory of the core after the last step that has ended.
  SignalMemory memory() const { return memory_of(controller_.save(), settings()); }

  /// Whether the step has ended: no rerun of it is to come.
  bool has_ended() const { return !rerun_; }

  /// The next observation: of a new step, or of the rerun of the last.
  const WatchedStep& next() {
    if (rerun_) {
      take_rerun();
    } else {
      take_step();
    }
    return step_;
  }

 private:
  static constexpr std::uint32_t kSites = 2;

  static Options options(Random& random) {
    Options drawn = gnmr::testing::random_options(random);
    drawn.max_cost = 1.0;  // with few units a smaller limit may leave room for none
    drawn.lag = 0;
    return drawn;
  }

  HoldRule hold(bool may_rerun) const {
    const Guard guard = controller_.guard();
    const bool by_trial = controller_.selector() == Selector::trial;
    if (by_trial && may_rerun) return HoldRule::for_trial;
    if (guard == Guard::skip) return HoldRule::for_guard;
    return guard == Guard::replay && !by_trial && may_rerun ? HoldRule::for_guard : HoldRule::never;
  }

  void take_norms() {
    const NormArrays arrays(norms_.next());
    step_.norms = arrays.norms;
    step_.sampled = arrays.sampled;
  }

  void take_alarm(const gnmr::Alarm& alarm) {
    step_.alarm = alarm;
    for (UnitIndex unit = 0; unit < units_.size(); ++unit) {
      const gnmr::Signals signals = controller_.signals(unit);
      step_.risks[unit] = signals.risk;
      step_.severities[unit] = signals.risk == RiskKind::none ? 0.0 : signals.severity;
    }
  }

  void take_step() {
    const std::vector<double> errors = errors_.patrol();
    // With a full budget a gate has other limits than these errors are judged by.
    const bool may_call = controller_.selector() != Selector::trial || !is_full(controller_);
    const bool may_rerun = random_.chance(0.9) && may_call;
    const bool may = may_rerun && controller_.rerun_may_be();
    step_ = {};
    step_.risks.resize(units_.size());
    step_.severities.resize(units_.size());
    step_.hold = hold(may);
    take_norms();
    step_.flags = flags_of(controller_);
    const bool early = is_early(controller_);
    const Outcome& outcome = gnmr::testing::run_step(
        controller_,
        {.step = ++number_, .norms = step_.norms, .sampled = step_.sampled, .errors = errors, .may_rerun = may_rerun});
    step_.alarmed = outcome.alarmed;
    step_.held = outcome.action != Action::apply || (may && asks_for_replay(outcome));
    take_patrol(errors, outcome.findings, early);
    take_alarm(outcome.alarm);
    rerun_ = gnmr::testing::wants_trial(outcome);
    // A replay, which nothing observes, is over at once.
    if (outcome.action == Action::rerun && !rerun_) {
      controller_.report({.step = number_, .done = Completion::rerun_failed});
    }
  }

  /// A gate holds for a replay before it is known whether anybody will be admitted.
  bool asks_for_replay(const Outcome& outcome) const {
    const Selector selector = controller_.selector();
    if (controller_.guard() != Guard::replay || selector == Selector::trial) return false;
    const auto is_free = [this](UnitIndex unit) { return (step_.flags[unit] & gate_flag::kFree) != 0; };
    const std::span<const UnitIndex> risks = outcome.alarm.risks;
    if (selector == Selector::norms) {
      return !outcome.alarm.common && std::any_of(risks.begin(), risks.end(), is_free);
    }
    if (selector == Selector::evidence_after_alarm && risks.empty()) return false;
    return std::any_of(outcome.findings.begin(), outcome.findings.end(),
                       [&](const gnmr::Finding& finding) { return is_free(finding.unit); });
  }

  void take_patrol(const std::vector<double>& errors, std::span<const gnmr::Finding> findings, bool early) {
    if (errors.empty()) return;
    step_.patrol.assign(units_.size(), 0);
    for (std::size_t i = 0; i < errors.size(); ++i) {
      if (!std::isnan(errors[i])) step_.patrol[i / kSites] |= patrol_flag::kMeasured;
    }
    const auto asks = [&](const gnmr::Finding& finding) {
      if (controller_.selector() != Selector::trial) return true;
      const auto first = errors.begin() + static_cast<std::ptrdiff_t>(std::size_t{finding.unit} * kSites);
      return early ? std::any_of(first, first + kSites, [](double error) { return std::isinf(error); })
                   : finding.excess > 1.25;
    };
    for (const gnmr::Finding& finding : findings) {
      if (asks(finding)) step_.patrol[finding.unit] |= patrol_flag::kStandsOut;
    }
  }

  /// Other norms and a verdict, or a rerun that failed: then the same norms, which are learned now.
  void take_rerun() {
    rerun_ = false;
    step_.is_rerun = true;
    step_.hold = HoldRule::never;
    step_.patrol.clear();
    if (random_.chance(0.1)) {
      controller_.report({.step = number_, .done = Completion::rerun_failed});
      return;
    }
    take_norms();
    const std::vector<double> errors = errors_.trial();
    const Outcome& outcome = gnmr::testing::run_step(
        controller_, {.step = number_, .norms = step_.norms, .sampled = step_.sampled, .errors = errors});
    take_alarm(outcome.alarm);
  }

  Random random_;
  std::vector<Unit> units_;
  Controller controller_;
  RandomRun norms_;
  RandomErrors errors_;
  std::int64_t number_ = 0;
  bool rerun_ = false;
  WatchedStep step_;
};

}  // namespace gnmr::kernels::testing
