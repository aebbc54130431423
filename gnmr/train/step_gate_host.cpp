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

  void pass(PassNumbers& numbers, const GateStep& step) override {
    PassResult& pass = numbers.rest;
    signals_.set_flags(step.flags);
    const kernels::StepAlarm& alarm = signals_.observe(
        {.norms = pass.norms.values.data(), .sampled = pass.norms.sampled.data()}, step.hold);
    pass.held = alarm.held != 0;
    pass.update = update_of(pass.squares, parts_.largest_norm);
    pass.update.applied = pass.update.applied && !pass.held;
    if (pass.update.applied) parts_.optimizer.step(step.learning_rate, pass.update.clip);
  }

 private:
  HostGateParts parts_;
  kernels::SignalSettings settings_;
  kernels::HostSignals signals_;
};

}  // namespace

std::unique_ptr<StepGate> make_host_gate(const HostGateParts& parts) { return std::make_unique<HostGate>(parts); }

}  // namespace gnmr::train
