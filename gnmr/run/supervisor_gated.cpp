// SPDX-License-Identifier: Apache-2.0
// The supervisor of a run with a gate: steps are planned before they run, and settled while the next one does.
#include <algorithm>

#include "gnmr/run/supervisor.h"

namespace gnmr::run {

void Supervisor::plan(std::int64_t step) {
  const UndecidedStep* const undecided = steps_.next_to_hear();
  const bool is_planned = undecided != nullptr && steps_.state().undecided.back().plan.step == step;
  const StepPlan& planned = steps_.plan(step);
  if (is_planned) return;
  const std::vector<Unit>& units = controller().units();
  planned_recovered_.clear();
  planned_flags_.assign(units.size(), 0);
  for (UnitIndex unit = 0; unit < units.size(); ++unit) {
    if (controller().steps_left(unit) > 0) planned_recovered_.push_back(unit);
    const unsigned free = controller().is_free(unit) ? 1 : 0;
    const unsigned muted = controller().is_zero_muted(unit) ? 2 : 0;
    planned_flags_[unit] = static_cast<std::uint8_t>(free | muted);
  }
  if (restored_recovered_) planned_recovered_ = *std::exchange(restored_recovered_, std::nullopt);
  if (planned.pass == PassKind::trial && !planned.again) whys_[planned.batch] = std::exchange(called_why_, {});
}

const StepPlan& Supervisor::begin(std::int64_t step) {
  if (disarm_step_ != 0 && step >= disarm_step_) set_mode(io::JournalModeKind::watch, std::string(disarm_why_));
  if (!has_gate()) {
    plan_ = {.step = step, .batch = steps_.take_batch(step)};
    return plan_;
  }
  plan(step);
  plan_ = steps_.begin(step, is_in_force(step));
  return plan_;
}

/// Where a batch is to come again, or a trial is called, the journal's line of that will tell why.
void Supervisor::remember_why(const UndecidedStep& step) {
  const std::string text = "step " + std::to_string(step.plan.step) + ", " + alarm_text(hearing_);
  if (hearing_.action == Action::trial || hearing_.action == Action::replay) whys_[step.plan.batch] = text;
  if (steps_.calls()) called_why_ = text;
}

const Ruling& Supervisor::settle(const SettledStep& settled) {
  const UndecidedStep* const next = steps_.next_to_hear();
  const UndecidedStep step = next != nullptr ? *next : UndecidedStep{};
  hearing_ = steps_.hear(settled.observation, settled.errors, settled.held);
  if (signals_ && step.plan.step % signals_every_ == 0) signals_->write(step.plan.step, controller());
  alarm_text_.clear();
  if (step.plan.pass != PassKind::step) {
    const auto why = whys_.find(step.plan.batch);
    if (why != whys_.end()) alarm_text_ = why->second;
  }
  whys_.erase(step.plan.batch);
  remember_why(step);
  ruling_ = steps_.decide();
  // What was seen lives as long as the step is heard.
  hearing_.standing_out = {};
  if (settled.rerun) {
    write_rerun(*settled.rerun, ruling_, step.plan.pass == PassKind::replay ? "replay" : "trial");
  }
  io::StepContext told = settled.context;
  if (settled.held) told.alarm = "held";
  if (steps_.calls()) told.alarm = "called";
  if (hearing_.spent && step.in_force) told.alarm = "spent";
  hearing_.spent = false;
  close_step(ruling_, told);
  std::optional<bool> helped;
  const Decision& decision = ruling_.decision;
  if (step.plan.pass == PassKind::trial) {
    const bool far = settled.rerun && settled.rerun->distance && !(*settled.rerun->distance < io::kHelpfulDistance);
    helped = ruling_.verdict == Verdict::numeric || (ruling_.verdict == Verdict::unlocated && far);
  } else if (judge_.selector() == Selector::norms && !decision.released.empty()) {
    helped = decision.futile.empty();
  }
  audit(decision.step, step.in_force, helped);
  tell_late_modes();
  return ruling_;
}

/// A mode that holds from a step on is told after all steps before it.
void Supervisor::tell_mode(const io::JournalMode& mode, std::int64_t first_step) {
  if (!journal_) return;
  const UndecidedStep* const oldest = steps_.next_to_hear();
  if (oldest != nullptr && oldest->begun && oldest->plan.step < first_step) {
    late_modes_.push_back(mode);
  } else {
    journal_->mode(mode);
  }
}

void Supervisor::tell_late_modes() {
  for (const io::JournalMode& mode : late_modes_) journal_->mode(mode);
  late_modes_.clear();
}

}  // namespace gnmr::run
