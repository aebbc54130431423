// SPDX-License-Identifier: Apache-2.0
// Signals and alarm on the device against the core and against the reference, bit for bit.
#include "gnmr/kernels/signals_host.h"
#include "kernels/check.h"
#include "kernels/judged_run.h"

namespace gnmr::kernels::testing {
namespace {

/// The device's answer to one observation.
struct Answer {
  StepAlarm alarm;
  std::vector<RiskKind> risks;
  std::vector<double> severities;
  std::uint32_t apply;
};

/// Signals on the device with room for what goes in and out.
class Watcher {
 public:
  Watcher(std::uint32_t units, const SignalSettings& settings)
      : signals_(units, settings),
        norms_(units),
        sampled_(units),
        patrol_(units),
        alarm_(1),
        risks_(units),
        severities_(units),
        gate_(1) {}

  Answer observe(const WatchedStep& step, std::uint32_t apply) {
    norms_.put(step.norms);
    sampled_.put(step.sampled);
    if (!step.patrol.empty()) patrol_.put(step.patrol);
    gate_.put({{.total_norm = 1, .coefficient = 1, .apply = apply}});
    signals_.set_flags(step.flags, nullptr);
    signals_.observe(
        {.norms = norms_.data(), .sampled = sampled_.data(), .patrol = step.patrol.empty() ? nullptr : patrol_.data()},
        step.hold,
        {.gate = gate_.data(), .alarm = alarm_.data(), .risks = risks_.data(), .severities = severities_.data()},
        nullptr);
    must(cudaDeviceSynchronize());
    return {alarm_.get()[0], risks_.get(), severities_.get(), gate_.get()[0].apply};
  }

  UnitSignals& signals() { return signals_; }

 private:
  UnitSignals signals_;
  OnDevice<double> norms_;
  OnDevice<std::uint8_t> sampled_, patrol_;
  OnDevice<StepAlarm> alarm_;
  OnDevice<RiskKind> risks_;
  OnDevice<double> severities_;
  OnDevice<Gate> gate_;
};

void check_against_core(Checks& checks) {
  const std::uint64_t seeds = checks.is_small() ? 12 : 60;
  std::string trouble;
  std::size_t reruns = 0;
  std::size_t observations = 0;
  for (std::uint64_t seed = 0; seed < seeds && trouble.empty(); ++seed) {
    JudgedRun run(seed);
    Watcher watcher(run.units(), run.settings());
    for (int i = 0; i < (checks.is_small() ? 40 : 120) && trouble.empty(); ++i) {
      const WatchedStep& step = run.next();
      const std::uint32_t apply = i % 7 == 0 ? 0 : 1;
      const Answer answer = watcher.observe(step, apply);
      trouble = difference(step, answer.alarm, answer.risks, answer.severities);
      if (answer.apply != (answer.alarm.held != 0 ? 0 : apply)) trouble = "apply";
      if (trouble.empty() && run.has_ended() && i % 10 == 0) {
        const std::uint32_t window = run.settings().window;
        if (turned(watcher.signals().save(nullptr), window) != turned(run.memory(), window)) trouble = "memory";
      }
      if (!trouble.empty()) trouble += ", seed " + std::to_string(seed) + ", observation " + std::to_string(i);
      reruns += step.is_rerun ? 1 : 0;
      ++observations;
    }
  }
  checks.report("signals, alarm and hold are the core's in " + std::to_string(observations) + " observations, " +
                    std::to_string(reruns) + " of them reruns",
                trouble);
}

void check_many_units(Checks& checks) {
  const std::uint32_t units = checks.is_small() ? 1000 : 44544;
  Random random(21);
  const SignalSettings settings = settings_of(Options::preset("default"), Selector::trial);
  RandomRun run(random, units);
  HostSignals reference(units, settings);
  Watcher watcher(units, settings);
  std::string trouble;
  for (int i = 0; i < 40 && trouble.empty(); ++i) {
    const NormArrays arrays(run.next());
    WatchedStep step{.norms = arrays.norms, .sampled = arrays.sampled};
    step.flags.assign(units, gate_flag::kFree);
    step.hold = i % 5 == 0 ? HoldRule::for_trial : i % 5 == 1 ? HoldRule::for_guard : HoldRule::never;
    reference.set_flags(step.flags);
    const StepAlarm& expected = reference.observe(step.inputs(), step.hold);
    const Answer answer = watcher.observe(step, 1);
    if (answer.alarm != expected) trouble = "alarm";
    if (answer.risks != reference.risks()) trouble = "risks";
    if (!same_bits(answer.severities, reference.severities())) trouble = "severities";
    if (i % 8 == 7 && watcher.signals().save(nullptr) != reference.memory()) trouble = "memory";
    if (i == 20) watcher.signals().load(reference.memory(), nullptr);
    if (!trouble.empty()) trouble += " of step " + std::to_string(i);
  }
  checks.report("signals of " + std::to_string(units) + " units have the reference's bits", trouble);
}

}  // namespace

void check_signals(Checks& checks) {
  check_against_core(checks);
  check_many_units(checks);
}

}  // namespace gnmr::kernels::testing
