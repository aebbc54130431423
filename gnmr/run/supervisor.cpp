// SPDX-License-Identifier: Apache-2.0
#include "gnmr/run/supervisor.h"

#include <algorithm>
#include <utility>

namespace gnmr::run {

Supervisor::Supervisor(std::vector<Unit> units, const SupervisorSettings& settings, const SupervisorFiles& files)
    : settings_(settings),
      controller_(std::move(units), settings.options, settings.backend),
      reasons_(!files.journal.empty()),
      audit_(settings.disarm_after),
      paths_(controller_.units().size(), kLowPath) {
  listeners_ = {&last_decision_, &reasons_, &audit_};
  if (!files.journal.empty()) {
    const io::JournalSettings journal{
        .path = files.journal, .existing = files.existing, .resume_step = files.next_step, .in_background = true};
    listeners_.push_back(&journal_.emplace(journal, controller_, settings_.sites, reasons_));
  }
  if (!files.signals.empty() && files.signals_every > 0) {
    const io::SignalsSettings signals{
        .path = files.signals, .unit_count = controller_.units().size(), .existing = files.existing};
    listeners_.push_back(&signals_.emplace(signals, files.signals_every));
  }
  if (!files.errors.empty() && files.signals_every > 0 && settings_.backend.sites > 0) {
    const io::SignalsSettings errors{.path = files.errors,
                                     .unit_count = controller_.units().size(),
                                     .sites = settings_.backend.sites,
                                     .existing = files.existing};
    listeners_.push_back(&errors_.emplace(errors, files.signals_every));
  }
  if (!settings_.switches) set_mode(Mode::watch, "the controller was asked to watch");
}

/// The journal says where decisions are not carried out although the mode is armed.
void Supervisor::note_first_steps(std::int64_t step) {
  if (!journal_ || mode_ != Mode::armed || settings_.choose) return;
  if (step == 1) journal_->set_mode({Mode::watch, "the first steps are only watched"}, step);
  if (step == settings_.watch_steps + 1) journal_->set_mode({Mode::armed, "the first steps are over"}, step);
}

const StepPlan& Supervisor::begin(std::int64_t step) {
  if (audit_.is_due(step)) set_mode(Mode::watch, audit_.due_why());
  const bool is_rerun = !has_gate() && outcome_.action == Action::rerun && outcome_.step == step;
  if (!is_rerun && settings_.watch_steps > 0) note_first_steps(step);
  const Mode others = mode_ == Mode::high ? Mode::high : Mode::watch;
  controller_.set_mode(is_in_force(step) ? Mode::armed : others);
  plan_ = controller_.begin(step);
  recovered_.assign(plan_.recovered.begin(), plan_.recovered.end());
  if (mode_ == Mode::armed && settings_.choose) recovered_ = settings_.choose(step);
  plan_.recovered = recovered_;  // the controller's own view ends with its next report
  collect_high();
  if (!is_rerun) {
    recovered_count_ = static_cast<std::int64_t>(recovered_.size());
    // Units that something else chose are in no recovery of the controller's.
    const std::span<const UnitIndex> standing =
        settings_.choose ? std::span<const UnitIndex>() : controller_.standing();
    standing_count_ = std::count_if(standing.begin(), standing.end(), [this](UnitIndex unit) {
      return std::binary_search(recovered_.begin(), recovered_.end(), unit);
    });
  }
  for (OutcomeListener* const listener : listeners_) listener->begun(controller_);
  return plan_;
}

/// The units that run high: those in recovery, under the rules of the switchboard.
void Supervisor::collect_high() {
  const std::vector<Unit>& units = controller_.units();
  high_.clear();
  in_recovery_.clear();
  for (UnitIndex unit = 0; unit < units.size(); ++unit) {
    std::optional<Path> forced;
    if (mode_ == Mode::high) {
      forced = Path::high;
    } else if (!settings_.rules.empty()) {
      forced = forced_path(settings_.rules, units[unit].name, plan_.step);
    }
    const bool recovers = std::binary_search(recovered_.begin(), recovered_.end(), unit);
    const bool is_high = forced ? *forced == Path::high : recovers;
    paths_[unit] = is_high ? kHighPath : kLowPath;
    if (is_high) high_.push_back(unit);
    if (recovers && !forced) in_recovery_.push_back(unit);
  }
  if (plan_.pass != PassKind::trial) plan_.path = paths_;
}

const Outcome& Supervisor::report(const StepReport& report, const RunNotes& notes) {
  ReportedRun run{.controller = controller_, .report = report, .outcome = outcome_, .notes = notes};
  // With lag 1 a later step may have begun since.
  const std::vector<PlannedStep>& undecided = controller_.plan_state().undecided;
  run.plan = {.step = plan_.step, .batch = plan_.batch, .pass = plan_.pass, .in_force = plan_.mode == Mode::armed};
  if (has_gate() && !undecided.empty()) run.plan = undecided.front();
  run.ran = report.done == Completion::rerun_failed ? PassKind::step : run.plan.pass;
  run.is_first = has_gate() || run.plan.pass == PassKind::step;
  // Lag 0: a mode that came after `begin` still keeps the step from being held or run again.
  const bool is_stopped = !has_gate() && run.is_first && run.plan.in_force && !is_in_force(run.plan.step);
  StepReport given = report;
  if (is_stopped) given.may_rerun = run.plan.in_force = false;
  outcome_ = controller_.report(given);
  if (is_stopped) {
    outcome_.action = Action::apply;
    outcome_.clip = {};
  }
  alarm_ = outcome_.alarm;
  // With lag 0 the first run of a replayed step was its decision.
  run.is_decided = outcome_.decided_step.has_value() && (has_gate() || run.plan.pass != PassKind::replay);
  run.norms_dropped = run.is_decided && report.held && outcome_.rerun == PassKind::trial;
  for (OutcomeListener* const listener : listeners_) listener->reported(run);
  if (run.norms_dropped) {
    alarm_ = {.step = outcome_.step};
    outcome_.findings = {};
  }
  if (const std::optional<std::string> why = audit_.take_conclusion()) set_mode(Mode::watch, *why);
  return outcome_;
}

void Supervisor::set_rules(std::vector<SwitchRule> rules) {
  settings_.rules = std::move(rules);
  if (plan_.step != 0) collect_high();
}

void Supervisor::set_mode(Mode mode, const std::string& why) {
  if (mode == mode_) return;
  audit_.clear();
  mode_ = mode;
  if (journal_) journal_->set_mode({mode, why}, plan_.step + 1);
}

void Supervisor::note(const std::string& text) {
  if (journal_) journal_->note(text);
}

std::uint32_t Supervisor::checksum() const {
  return checksum_of({.decision = last_decision_.checksum(),
                      .high = high_,
                      .mode = static_cast<std::uint8_t>(mode_),
                      .rules = settings_.rules});
}

std::uint64_t Supervisor::dropped() const {
  return (journal_ ? journal_->dropped() : 0) + (signals_ ? signals_->writer().dropped() : 0) +
         (errors_ ? errors_->writer().dropped() : 0);
}

bool Supervisor::flush(std::chrono::milliseconds longest) {
  const bool journal = !journal_ || journal_->flush(longest);
  const bool errors = !errors_ || errors_->writer().flush(longest);
  return (!signals_ || signals_->writer().flush(longest)) && errors && journal;
}

bool Supervisor::close() {
  const bool journal = !journal_ || journal_->close();
  const bool errors = !errors_ || errors_->writer().close();
  return (!signals_ || signals_->writer().close()) && errors && journal;
}

}  // namespace gnmr::run
