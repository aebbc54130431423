// SPDX-License-Identifier: Apache-2.0
#include "gnmr/core/host_gate.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "gnmr/core/gate_rule.h"
#include "gnmr/core/message_text.h"
#include "gnmr/core/norm_signals.h"

namespace gnmr {

struct HostGate::Impl {
  explicit Impl(const Controller& controller) : units(controller.units()), signals(units, controller.options()) {
    const ControllerState state = controller.save();
    const WeightTable mean_weights = signals.history().start_from(state.units);
    for (UnitIndex unit = 0; unit < units.size(); ++unit) {
      signals.history().restore_unit(unit, state.units[unit], {.means = true, .changes = true}, mean_weights);
    }
  }

  std::vector<Unit> units;
  NormSignals signals;
};

HostGate::HostGate(const Controller& controller) : impl_(std::make_unique<Impl>(controller)) {}
HostGate::HostGate(HostGate&&) noexcept = default;
HostGate& HostGate::operator=(HostGate&&) noexcept = default;
HostGate::~HostGate() = default;

bool HostGate::holds(const StepPlan& plan, const NormSpan& norms, std::span<const std::uint8_t> sampled) {
  NormSignals& signals = impl_->signals;
  if (plan.gate_flags.size() != impl_->units.size()) {
    reject_step(plan.step, "a plan with gate flags of " + std::to_string(impl_->units.size()) + " units, got " +
                               std::to_string(plan.gate_flags.size()));
  }
  signals.history().set_zero_muted(plan.gate_flags);
  const Alarm& alarm = signals.observe({.step = plan.step, .norms = norms, .sampled = sampled});
  bool has_free_risk = false;
  for (std::size_t index = 0; index < alarm.risks.size() && !has_free_risk; ++index) {
    const unsigned flags = plan.gate_flags[alarm.risks[index]];
    const std::uint32_t doubt = 1U << ((flags & gate_flag::kDoubt) >> gate_flag::kDoubtShift);
    has_free_risk = (flags & gate_flag::kFree) != 0 && signals.counts(index, doubt);
  }
  const bool has_non_finite_risk = alarm.sampled > alarm.finite;
  if (plan.hold == HoldRule::for_trial && (has_free_risk || has_non_finite_risk)) {
    signals.discard();
    return true;
  }
  signals.history().commit();
  return plan.hold == HoldRule::for_guard && has_free_risk && !alarm.common;
}

}  // namespace gnmr
