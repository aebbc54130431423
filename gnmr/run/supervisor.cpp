// SPDX-License-Identifier: Apache-2.0
#include "gnmr/run/supervisor.h"

#include <algorithm>
#include <chrono>

#include "gnmr/run/decision_checksum.h"
#include "gnmr/run/random_units.h"

namespace gnmr::run {

Supervisor::Supervisor(std::vector<Unit> units, const SupervisorSettings& settings, const SupervisorFiles& files)
    : settings_(settings),
      controller_(std::move(units), settings.options, settings.backend),
      signals_every_(files.signals_every),
      audit_(settings.disarm_after),
      paths_(controller_.units().size(), kLowPath) {
  if (!files.journal.empty()) {
    journal_.emplace(io::JournalSettings{
        .path = files.journal, .existing = files.existing, .resume_step = files.next_step, .in_background = true});
    journal_->header(controller_.units(), controller_.options(), io::utc_text(std::chrono::system_clock::now()));
  }
  if (!files.signals.empty() && files.signals_every > 0) {
    signals_.emplace(io::SignalsSettings{
        .path = files.signals, .unit_count = controller_.units().size(), .existing = files.existing});
  }
  if (settings_.random_share) note("random units are switched; the controller's decisions are only written");
  if (!settings_.switches) set_mode(Mode::watch, "the controller was asked to watch");
}

bool Supervisor::is_in_force(std::int64_t step) const {
  return mode_ == Mode::armed && !settings_.random_share && !settings_.chosen && step > settings_.watch_steps;
}

/// The journal says where decisions are not carried out although the mode is armed.
void Supervisor::note_first_steps(std::int64_t step) {
  if (!journal_ || mode_ != Mode::armed || settings_.random_share || settings_.watch_steps == 0) return;
  if (step == 1) write_mode({Mode::watch, "the first steps are only watched"}, step);
  if (step == settings_.watch_steps + 1) write_mode({Mode::armed, "the first steps are over"}, step);
}

const StepPlan& Supervisor::begin(std::int64_t step) {
  if (const std::optional<std::string> why = audit_.due(step)) set_mode(Mode::watch, *why);
  const bool is_rerun = !has_gate() && outcome_.action == Action::rerun && outcome_.step == step;
  if (!is_rerun) note_first_steps(step);
  const Mode others = mode_ == Mode::high ? Mode::high : Mode::watch;
  controller_.set_mode(is_in_force(step) ? Mode::armed : others);
  plan_ = controller_.begin(step);
  replaced_.assign(plan_.recovered.begin(), plan_.recovered.end());
  plan_.recovered = replaced_;  // the controller's own view ends with its next report
  collect_high();
  if (!is_rerun) recovered_count_ = static_cast<std::int64_t>(plan_.recovered.size());
  if (!controller_.plan_state().called) pass_on_called_reason();
  return plan_;
}

/// The trial that was called has been planned: its batch has the reason now.
void Supervisor::pass_on_called_reason() {
  const PlanState& state = controller_.plan_state();
  if (called_why_.empty() || state.undecided.empty()) return;
  const PlannedStep& planned = state.undecided.back();
  if (planned.pass == PassKind::trial && !planned.again) whys_[planned.batch] = std::exchange(called_why_, {});
}

/// The units that run high: recoveries, or what takes their place, under the rules of the switchboard.
void Supervisor::collect_high() {
  const std::vector<Unit>& units = controller_.units();
  if (mode_ == Mode::armed && (settings_.chosen || settings_.random_share)) {
    replaced_ = settings_.chosen ? settings_.chosen(plan_.step) : random_units(plan_.step);
    plan_.recovered = replaced_;
  }
  high_.clear();
  for (UnitIndex unit = 0; unit < units.size(); ++unit) {
    const std::optional<Path> forced = forced_path(settings_.rules, units[unit].name, plan_.step);
    const bool recovered = std::binary_search(plan_.recovered.begin(), plan_.recovered.end(), unit);
    const bool is_high = forced ? *forced == Path::high : recovered;
    paths_[unit] = is_high || mode_ == Mode::high ? kHighPath : kLowPath;
    if (paths_[unit] == kHighPath) high_.push_back(unit);
  }
  if (plan_.pass != PassKind::trial) plan_.path = paths_;
}

std::vector<UnitIndex> Supervisor::random_units(std::int64_t step) const {
  std::vector<UnitIndex> free_units;
  for (UnitIndex unit = 0; unit < controller_.units().size(); ++unit) {
    if (!controller_.units()[unit].forced) free_units.push_back(unit);
  }
  const RandomUnits choice{.units = free_units.size(),
                           .share = *settings_.random_share,
                           .lock_steps = controller_.options().lock_steps,
                           .seed = settings_.seed};
  std::vector<UnitIndex> chosen;
  for (const UnitIndex place : units_in_recovery(choice, step)) chosen.push_back(free_units[place]);
  return chosen;
}

const Outcome& Supervisor::report(const StepReport& report, const RunNotes& notes) {
  const bool failed = report.done == Completion::rerun_failed;
  PlannedStep step = reported_step(report);
  const PassKind ran = failed ? PassKind::step : step.pass;
  const bool is_first_run = has_gate() || step.pass == PassKind::step;
  // Lag 0: a mode that came after `begin` still keeps the step from being held or run again.
  const bool is_stopped = !has_gate() && is_first_run && step.in_force && !is_in_force(step.step);
  StepReport given = report;
  if (is_stopped) {
    given.may_rerun = false;
    step.in_force = false;
  }
  outcome_ = controller_.report(given);
  if (is_stopped) {
    outcome_.action = Action::apply;
    outcome_.clip = {};
  }
  alarm_ = outcome_.alarm;
  pass_on_called_reason();
  if (signals_ && is_first_run && step.step % signals_every_ == 0) signals_->write(step.step, controller_);
  if (has_gate()) {
    const auto why = whys_.extract(step.batch);
    rerun_why_ = ran != PassKind::step && why ? why.mapped() : std::string();
  }
  keep_reasons(step);
  if (ran != PassKind::step && notes.rerun) write_rerun(*notes.rerun, ran);
  // With lag 0 the first run of a replayed step was its decision.
  if (!outcome_.decided_step || (!has_gate() && step.pass == PassKind::replay)) return outcome_;
  write_step(notes, report.held, step.in_force);
  audit(ran, step.in_force, notes.rerun);
  if (journal_) write_late_modes();
  return outcome_;
}

/// What the plan of the reported run was. With lag 1 a later step may have begun since.
PlannedStep Supervisor::reported_step(const StepReport& report) const {
  const std::vector<PlannedStep>& undecided = controller_.plan_state().undecided;
  if (has_gate() && !undecided.empty()) return undecided.front();
  const bool is_rerun = outcome_.action == Action::rerun && outcome_.step == report.step;
  return {.step = plan_.step,
          .batch = plan_.batch,
          .pass = is_rerun ? outcome_.rerun : PassKind::step,
          .in_force = plan_.mode == Mode::armed};
}

/// Where a batch is to come again, or a trial is called, the journal's line of that says why.
void Supervisor::keep_reasons(const PlannedStep& step) {
  const bool comes_again = outcome_.action == Action::rerun;
  if (!journal_ || (!comes_again && !outcome_.called)) return;
  if (!has_gate()) {
    rerun_why_ = alarm_text();
    return;
  }
  const std::string text = "step " + std::to_string(step.step) + ", " + alarm_text();
  if (comes_again) whys_[step.batch] = text;
  if (outcome_.called) called_why_ = text;
}

/// What raised the alarm: the patrol's units, and how many are at risk by their norms, the worst one named.
std::string Supervisor::alarm_text() const {
  constexpr std::size_t kMostNames = 3;
  const std::vector<Unit>& units = controller_.units();
  const std::span<const Finding> findings = outcome_.findings;
  std::string text;
  for (std::size_t index = 0; index < std::min(kMostNames, findings.size()); ++index) {
    text += (index == 0 ? "patrol: " : ", ") + units[findings[index].unit].name;
  }
  if (findings.size() > kMostNames) text += " and " + std::to_string(findings.size() - kMostNames) + " more";
  const std::span<const UnitIndex> risks = outcome_.alarm.risks;
  if (risks.empty()) return text;
  const auto severity = [&](UnitIndex unit) { return controller_.signals(unit).severity; };
  const UnitIndex worst = *std::max_element(risks.begin(), risks.end(),
                                            [&](UnitIndex a, UnitIndex b) { return severity(a) < severity(b); });
  return text + (text.empty() ? "" : "; ") + "norms: " + std::to_string(risks.size()) + " at risk, most of all " +
         units[worst].name;
}

void Supervisor::write_rerun(const RerunContext& context, PassKind ran) {
  if (!journal_) return;
  io::JournalTrial line{.step = outcome_.step, .verdict = to_string(outcome_.verdict)};
  line.rerun = to_string(ran);
  // The findings of a step that was replayed at once are those of its first run.
  const bool has_findings = has_gate() || ran == PassKind::trial;
  for (const Finding& finding : has_findings ? outcome_.findings : std::span<const Finding>()) {
    line.units.push_back(controller_.units()[finding.unit].name);
    line.errors.push_back(finding.error);
    line.excesses.push_back(finding.excess);
    const std::size_t site = finding.site;
    line.places.push_back(site < settings_.sites.size() ? settings_.sites[site] : std::to_string(site));
  }
  if (context.loss_before) line.losses = {*context.loss_before, context.loss};
  if (context.norm_before) line.norms = {*context.norm_before, context.norm};
  line.distance = context.distance;
  line.seconds = context.seconds;
  line.applied = context.applied;
  if (outcome_.verdict == Verdict::unlocated) line.rank = context.rank;
  line.why = rerun_why_;
  journal_->trial(line);
}

void Supervisor::write_step(const RunNotes& notes, bool held, bool in_force) {
  decision_checksum_ = checksum_of(outcome_);
  // The norms of a step that was held for a trial were dropped.
  const bool dropped = held && outcome_.rerun == PassKind::trial;
  if (dropped) {
    alarm_ = {.step = outcome_.step};
    outcome_.findings = {};
  }
  if (!journal_) return;
  io::StepContext context{.loss = notes.loss, .clip_coefficient = notes.clip_coefficient, .has_signals = !dropped};
  if (held) context.alarm = "held";
  if (outcome_.called) context.alarm = "called";
  if (outcome_.spent && in_force) context.alarm = "spent";
  if (outcome_.dismissed) context.alarm = "dismissed";
  journal_->step(controller_, alarm_, outcome_.decision, context);
}

/// Where nothing of what it did over a span helped, it only watches from then on.
void Supervisor::audit(PassKind ran, bool in_force, const std::optional<RerunContext>& rerun) {
  const Decision& decision = outcome_.decision;
  std::optional<bool> helped;
  if (ran == PassKind::trial) {
    // What is not a number is as far away as can be.
    const bool far = rerun && rerun->distance && !(*rerun->distance < io::kHelpfulDistance);
    helped = outcome_.verdict == Verdict::numeric || (outcome_.verdict == Verdict::unlocated && far);
  } else if (controller_.selector() == Selector::norms && !decision.released.empty()) {
    helped = decision.futile.empty();
  }
  if (!in_force) return;
  const std::optional<std::string> why = audit_.add(decision.step, helped);
  if (!why) return;
  if (has_gate()) {
    // The step after this one may be running: it stays as it is, whenever this one is reported.
    audit_.disarm_at(decision.step + 2, *why);
  } else {
    set_mode(Mode::watch, *why);
  }
}

void Supervisor::set_rules(std::vector<SwitchRule> rules) {
  settings_.rules = std::move(rules);
  if (plan_.step != 0) collect_high();
}

void Supervisor::set_mode(Mode mode, const std::string& why) {
  if (mode == mode_) return;
  audit_.clear();
  mode_ = mode;
  write_mode({mode, why}, plan_.step + 1);
}

/// A mode that holds from a step on is written after all steps before it.
void Supervisor::write_mode(const io::JournalMode& mode, std::int64_t first_step) {
  if (!journal_) return;
  const std::vector<PlannedStep>& undecided = controller_.plan_state().undecided;
  if (!undecided.empty() && undecided.front().begun && undecided.front().step < first_step) {
    late_modes_.push_back(mode);
  } else {
    journal_->mode(mode);
  }
}

void Supervisor::write_late_modes() {
  for (const io::JournalMode& mode : late_modes_) journal_->mode(mode);
  late_modes_.clear();
}

void Supervisor::note(const std::string& text) {
  if (journal_) journal_->note(text);
}

std::uint32_t Supervisor::checksum() const {
  return checksum_of({.decision = decision_checksum_,
                      .high = high_,
                      .mode = static_cast<std::uint8_t>(mode_),
                      .rules = settings_.rules});
}

std::uint64_t Supervisor::dropped() const {
  return (journal_ ? journal_->dropped() : 0) + (signals_ ? signals_->dropped() : 0);
}

bool Supervisor::flush(std::chrono::milliseconds longest) {
  const bool journal = !journal_ || journal_->flush(longest);
  return (!signals_ || signals_->flush(longest)) && journal;
}

bool Supervisor::close() {
  if (journal_) write_late_modes();
  const bool journal = !journal_ || journal_->close();
  return (!signals_ || signals_->close()) && journal;
}

}  // namespace gnmr::run
