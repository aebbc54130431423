// SPDX-License-Identifier: Apache-2.0
#include "gnmr/core/host_gate.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gnmr/core/gate_rule.h"
#include "gnmr/core/message_text.h"
#include "gnmr/core/norm_signals.h"

namespace gnmr {

struct HostGate::Impl {
  explicit Impl(const Controller& controller)
      : units(controller.units()), sites(controller.backend().sites), signals(units, controller.options()) {
    const ControllerState state = controller.save();
    const WeightTable mean_weights = signals.history().start_from(state.units);
    for (UnitIndex unit = 0; unit < units.size(); ++unit) {
      signals.history().restore_unit(unit, state.units[unit], {.means = true, .changes = true}, mean_weights);
    }
  }

  void check(const StepPlan& plan, const StepReport& report) const;

  /// Whether an error of a free unit is above its limit.
  bool has_free_outlier(const StepPlan& plan, std::span<const double> errors) const {
    const std::size_t judged = std::min(errors.size(), plan.error_limits.size());
    for (std::size_t index = 0; index < judged; ++index) {
      const bool is_above = std::isinf(errors[index]) || errors[index] > static_cast<double>(plan.error_limits[index]);
      if (is_above && (plan.gate_flags[index / sites] & gate_flag::kFree) != 0) return true;
    }
    return false;
  }

  /// Whether the errors leave out no free unit that is sampled. Without limits they say nothing.
  bool is_complete(const StepPlan& plan, std::span<const double> errors) const {
    if (plan.error_limits.empty() || errors.empty()) return false;
    const auto is_measured = [](double error) { return !std::isnan(error); };
    for (UnitIndex unit = 0; unit < units.size(); ++unit) {
      if ((plan.gate_flags[unit] & gate_flag::kFree) == 0 || !signals.history().saw_sample(unit)) continue;
      const std::span<const double> of_unit = errors.subspan(std::size_t{unit} * sites, sites);
      if (std::none_of(of_unit.begin(), of_unit.end(), is_measured)) return false;
    }
    return true;
  }

  std::vector<Unit> units;
  std::size_t sites;
  NormSignals signals;
};

void HostGate::Impl::check(const StepPlan& plan, const StepReport& report) const {
  const auto expect = [&plan](std::size_t found, std::size_t expected, const std::string& what) {
    if (found == expected) return;
    reject_step(plan.step, what + " " + std::to_string(expected) + ", got " + std::to_string(found));
  };
  expect(plan.gate_flags.size(), units.size(), "a plan with gate flags of all units:");
  const std::size_t errors = units.size() * sites;
  if (!plan.error_limits.empty()) expect(plan.error_limits.size(), errors, "a plan with limits for all sites:");
  if (!report.errors.empty()) expect(report.errors.size(), errors, "errors of all sites of all units:");
  if (std::any_of(report.errors.begin(), report.errors.end(), [](double error) { return error < 0; })) {
    reject_step(plan.step, "errors that are not negative");
  }
}

HostGate::HostGate(const Controller& controller) : impl_(std::make_unique<Impl>(controller)) {}
HostGate::HostGate(HostGate&&) noexcept = default;
HostGate& HostGate::operator=(HostGate&&) noexcept = default;
HostGate::~HostGate() = default;

bool HostGate::holds(const StepPlan& plan, const StepReport& report) {
  NormSignals& signals = impl_->signals;
  impl_->check(plan, report);
  signals.history().set_zero_muted(plan.gate_flags);
  const Alarm& alarm = signals.observe({.step = plan.step, .norms = report.norms, .sampled = report.sampled});
  bool has_free_risk = false;
  for (std::size_t index = 0; index < alarm.risks.size() && !has_free_risk; ++index) {
    const unsigned flags = plan.gate_flags[alarm.risks[index]];
    const std::uint32_t doubt = 1U << ((flags & gate_flag::kDoubt) >> gate_flag::kDoubtShift);
    has_free_risk = (flags & gate_flag::kFree) != 0 && signals.counts(index, doubt);
  }
  const bool has_non_finite_risk = alarm.sampled > alarm.finite;
  const bool has_outlier = impl_->has_free_outlier(plan, report.errors);
  const bool counts = has_free_risk && (has_non_finite_risk || !impl_->is_complete(plan, report.errors));
  if (plan.hold == HoldRule::for_trial && (has_outlier || has_non_finite_risk || counts)) {
    signals.discard();
    return true;
  }
  signals.history().commit();
  return plan.hold == HoldRule::for_guard && (has_outlier || (counts && !alarm.common));
}

}  // namespace gnmr
