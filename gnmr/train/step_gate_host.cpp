// SPDX-License-Identifier: Apache-2.0
#include "gnmr/kernels/signals_host.h"
#include "gnmr/train/step_gate.h"
#include "gnmr/train/step_gate_signals.h"

namespace gnmr::train {
namespace {

class HostGate : public StepGate {
 public:
  explicit HostGate(const HostGateParts& parts)
      : parts_(parts), settings_(signal_settings(parts.options, parts.selector)), signals_(parts.units, settings_) {}

  void load(const ControllerState& state) override { signals_.load(kernels::memory_of(state, settings_)); }

  void pass(BatchNumbers& numbers, const GateStep& step) override {
    signals_.set_flags(step.flags);
    const kernels::StepAlarm& alarm =
        signals_.observe({.norms = numbers.norms.values.data(), .sampled = numbers.norms.sampled.data()}, step.hold);
    numbers.held = alarm.held != 0;
    numbers.update.applied = numbers.update.applied && !numbers.held;
    if (numbers.update.applied) parts_.optimizer.step(step.learning_rate, numbers.update.clip);
  }

 private:
  HostGateParts parts_;
  kernels::SignalSettings settings_;
  kernels::HostSignals signals_;
};

}  // namespace

std::unique_ptr<StepGate> make_host_gate(const HostGateParts& parts) { return std::make_unique<HostGate>(parts); }

}  // namespace gnmr::train
