// SPDX-License-Identifier: Apache-2.0
#include "gnmr/run/rerun_reasons.h"

#include <algorithm>
#include <span>
#include <utility>

namespace gnmr::run {
namespace {

/// What raised the alarm: the patrol's units, and how many are at risk by their norms, the worst one named.
std::string alarm_text(const Controller& controller, const Outcome& outcome) {
  constexpr std::size_t kMostNames = 3;
  const std::vector<Unit>& units = controller.units();
  const std::span<const Finding> findings = outcome.findings;
  std::string text;
  for (std::size_t index = 0; index < std::min(kMostNames, findings.size()); ++index) {
    text += (index == 0 ? "patrol: " : ", ") + units[findings[index].unit].name;
  }
  if (findings.size() > kMostNames) text += " and " + std::to_string(findings.size() - kMostNames) + " more";
  const std::span<const UnitIndex> risks = outcome.alarm.risks;
  if (risks.empty()) return text;
  const auto severity = [&](UnitIndex unit) { return controller.signals(unit).severity; };
  const UnitIndex worst = *std::max_element(risks.begin(), risks.end(),
                                            [&](UnitIndex a, UnitIndex b) { return severity(a) < severity(b); });
  return text + (text.empty() ? "" : "; ") + "norms: " + std::to_string(risks.size()) + " at risk, most of all " +
         units[worst].name;
}

}  // namespace

void RerunReasons::begun(const Controller& controller) {
  if (!controller.plan_state().called) assign_called(controller);
}

/// The trial that was called has been planned: its batch has the reason now.
void RerunReasons::assign_called(const Controller& controller) {
  const PlanState& state = controller.plan_state();
  if (waiting_.of_call.empty() || state.undecided.empty()) return;
  const PlannedStep& planned = state.undecided.back();
  if (planned.pass == PassKind::trial && !planned.again) {
    waiting_.by_batch[planned.batch] = std::exchange(waiting_.of_call, {});
  }
}

void RerunReasons::reported(const ReportedRun& run) {
  assign_called(run.controller);
  const bool is_late = run.controller.options().lag == 1;
  if (is_late) {
    const auto why = waiting_.by_batch.extract(run.plan.batch);
    of_rerun_ = run.ran != PassKind::step && why ? why.mapped() : std::string();
  }
  const bool comes_again = run.outcome.action == Action::rerun;
  if (!is_wanted_ || (!comes_again && !run.outcome.called)) return;
  if (!is_late) {
    of_rerun_ = alarm_text(run.controller, run.outcome);
    return;
  }
  const std::string text = "step " + std::to_string(run.plan.step) + ", " + alarm_text(run.controller, run.outcome);
  if (comes_again) waiting_.by_batch[run.plan.batch] = text;
  if (run.outcome.called) waiting_.of_call = text;
}

}  // namespace gnmr::run
