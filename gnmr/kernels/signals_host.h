// SPDX-License-Identifier: Apache-2.0
// What signals.h computes, unit by unit, on the host: the kernels are compared with it, bit for bit. (Runs without a
// GPU have gnmr/core/host_gate.h.)
//
// Goals: the same arithmetic as on the device, in a plain loop; tests compare it with the core. Non-goals: speed.
// The file is compiled with -ffp-contract=off.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gnmr/kernels/signals.h"

namespace gnmr::kernels {

/// The histories of all units, on the host.
class HostSignals {
 public:
  HostSignals(std::uint32_t units, const SignalSettings& settings);

  void set_flags(std::span<const std::uint8_t> flags) { flags_.assign(flags.begin(), flags.end()); }

  /// One step; the inputs are in host memory. Whether the update is held is in the alarm.
  const StepAlarm& observe(const SignalInputs& inputs, HoldRule hold);

  const std::vector<RiskKind>& risks() const { return risks_; }
  const std::vector<double>& severities() const { return severities_; }
  const SignalMemory& memory() const { return memory_; }
  void load(const SignalMemory& memory) { memory_ = memory; }

 private:
  std::uint32_t units_;
  SignalSettings settings_;
  SignalMemory memory_;
  std::vector<std::uint8_t> flags_;
  std::vector<RiskKind> risks_;
  std::vector<double> severities_;
  StepAlarm alarm_ = {};
};

}  // namespace gnmr::kernels
