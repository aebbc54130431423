// SPDX-License-Identifier: Apache-2.0
#include "gnmr/run/supervisor.h"

#include <algorithm>
#include <chrono>

#include "gnmr/run/decision_checksum.h"
#include "gnmr/run/random_units.h"

namespace gnmr::run {
namespace {

constexpr std::size_t kFewestAudited = 3;  // occasions that say something

}  // namespace

Supervisor::Supervisor(std::vector<Unit> units, const SupervisorSettings& settings, const SupervisorFiles& files)
    : settings_(settings),
      judge_(std::move(units), settings.options, settings.backend),
      signals_every_(files.signals_every) {
  GatedSteps::check(settings.options);
  for (UnitIndex unit = 0; unit < controller().units().size(); ++unit) {
    if (!controller().units()[unit].forced) free_units_.push_back(unit);
  }
  if (!files.journal.empty()) {
    journal_.emplace(io::JournalSettings{
        .path = files.journal, .existing = files.existing, .resume_step = files.next_step, .in_background = true});
    journal_->header(controller().units(), controller().options(), io::utc_text(std::chrono::system_clock::now()));
  }
  if (!files.signals.empty() && files.signals_every > 0) {
    signals_.emplace(io::SignalsSettings{
        .path = files.signals, .unit_count = controller().units().size(), .existing = files.existing});
  }
  if (settings_.random_share) note("random units are switched; the controller's decisions are only written");
  if (!settings_.switches) set_mode(io::JournalModeKind::watch, "the controller was asked to watch");
}

void Supervisor::collect_recovered(std::int64_t step) {
  recovered_.clear();
  if (mode_ != io::JournalModeKind::armed) return;
  if (settings_.chosen) {
    recovered_ = settings_.chosen(step);
    return;
  }
  if (settings_.random_share) {
    const RandomUnits chosen{.units = free_units_.size(),
                             .share = *settings_.random_share,
                             .lock_steps = controller().options().lock_steps,
                             .seed = settings_.seed};
    for (const UnitIndex place : units_in_recovery(chosen, step)) recovered_.push_back(free_units_[place]);
    return;
  }
  if (step <= settings_.watch_steps) return;
  if (has_gate()) {
    recovered_ = planned_recovered_;
  } else if (!in_flight_.empty()) {
    recovered_ = in_flight_.front();
  }
}

/// The journal tells where decisions are not carried out although the mode is armed.
void Supervisor::tell_first_steps(std::int64_t step) {
  if (!journal_ || mode_ != io::JournalModeKind::armed || settings_.random_share || settings_.watch_steps == 0) return;
  if (step == 1) tell_mode({io::JournalModeKind::watch, "the first steps are only watched"}, step);
  if (step == settings_.watch_steps + 1) tell_mode({io::JournalModeKind::armed, "the first steps are over"}, step);
}

std::span<const UnitIndex> Supervisor::high(std::int64_t step) {
  tell_first_steps(step);
  collect_recovered(step);
  recovered_count_ = static_cast<std::int64_t>(recovered_.size());
  high_.clear();
  const std::vector<Unit>& units = controller().units();
  for (UnitIndex unit = 0; unit < units.size(); ++unit) {
    const std::optional<Path> forced = forced_path(settings_.rules, units[unit].name, step);
    const bool recovered = std::binary_search(recovered_.begin(), recovered_.end(), unit);
    const bool is_high = forced ? *forced == Path::high : recovered;
    if (is_high || mode_ == io::JournalModeKind::high) high_.push_back(unit);
  }
  return high_;
}

bool Supervisor::is_in_force(std::int64_t step) const {
  return mode_ == io::JournalModeKind::armed && !settings_.random_share && !settings_.chosen &&
         step > settings_.watch_steps;
}

const Hearing& Supervisor::hear(const Observation& observation, std::span<const double> patrol, bool may_rerun) {
  const bool in_force = is_in_force(observation.step);
  hearing_ = judge_.hear(observation, patrol, in_force && may_rerun);
  if (!in_force) {
    hearing_.action = Action::proceed;
    hearing_.clip = {};
  }
  const bool reruns = hearing_.action == Action::trial || hearing_.action == Action::replay;
  alarm_text_ = reruns && journal_ ? alarm_text(hearing_) : std::string();
  if (signals_ && observation.step % signals_every_ == 0) signals_->write(observation.step, controller());
  return hearing_;
}

/// What raised the alarm: the patrol's units, and how many are at risk by their norms, the worst one named.
std::string Supervisor::alarm_text(const Hearing& hearing) const {
  constexpr std::size_t kMostNames = 3;
  std::string text;
  for (std::size_t index = 0; index < std::min(kMostNames, hearing.standing_out.size()); ++index) {
    text += (index == 0 ? "patrol: " : ", ") + controller().units()[hearing.standing_out[index]].name;
  }
  if (hearing.standing_out.size() > kMostNames) {
    text += " and " + std::to_string(hearing.standing_out.size() - kMostNames) + " more";
  }
  const std::span<const UnitIndex> risks = judge_.alarm().risks;
  if (risks.empty()) return text;
  const auto severity = [&](UnitIndex unit) { return controller().signals(unit).severity; };
  const UnitIndex worst = *std::max_element(risks.begin(), risks.end(),
                                            [&](UnitIndex a, UnitIndex b) { return severity(a) < severity(b); });
  text += (text.empty() ? "" : "; ") + std::string("norms: ") + std::to_string(risks.size()) +
          " at risk, most of all " + controller().units()[worst].name;
  return text;
}

/// The end of a step: the decision waits for its step, the journal has its lines.
void Supervisor::close_step(const Ruling& ruling, const io::StepContext& context) {
  const Decision& decision = ruling.decision;
  in_flight_.emplace_back(decision.recovered.begin(), decision.recovered.end());
  while (in_flight_.size() > 1) in_flight_.pop_front();
  decision_checksum_ = checksum_of(ruling);
  if (!journal_) return;
  io::StepContext told = context;
  if (hearing_.dismissed) told.alarm = "dismissed";
  if (hearing_.spent && told.alarm.empty() && is_in_force(decision.step)) told.alarm = "spent";
  journal_->step(controller(), judge_.alarm(), decision, told);
}

const Ruling& Supervisor::decide(const io::StepContext& context) {
  ruling_ = judge_.decide();
  close_step(ruling_, context);
  if (!is_in_force(ruling_.decision.step)) {
    ruling_.action = Action::proceed;
    ruling_.clip = {};
  }
  std::optional<bool> helped;
  const Decision& decision = ruling_.decision;
  if (judge_.selector() == Selector::norms && !decision.released.empty()) helped = decision.futile.empty();
  audit(decision.step, is_in_force(decision.step), helped);
  return ruling_;
}

const Ruling& Supervisor::conclude(const Observation& rerun, std::span<const double> errors,
                                   const RerunContext& rerun_context, const io::StepContext& context) {
  ruling_ = judge_.conclude(rerun, errors);
  const Ruling& ruling = ruling_;
  write_rerun(rerun_context, ruling, "trial");
  close_step(ruling, context);
  // What is not a number is as far away as can be.
  const bool far = rerun_context.distance && !(*rerun_context.distance < io::kHelpfulDistance);
  audit(ruling.decision.step, is_in_force(ruling.decision.step),
        ruling.verdict == Verdict::numeric || (ruling.verdict == Verdict::unlocated && far));
  return ruling;
}

void Supervisor::write_rerun(const RerunContext& context, const Ruling& ruling, const char* kind) {
  if (!journal_) return;
  io::JournalTrial line{.step = ruling.decision.step, .verdict = to_string(ruling.verdict)};
  line.rerun = kind;
  for (std::size_t index = 0; index < ruling.units.size(); ++index) {
    line.units.push_back(controller().units()[ruling.units[index]].name);
    line.errors.push_back(ruling.errors[index]);
    line.excesses.push_back(ruling.excesses[index]);
    const std::size_t place = ruling.places[index];
    line.places.push_back(place < settings_.places.size() ? settings_.places[place] : std::to_string(place));
  }
  if (context.loss_before) line.losses = {*context.loss_before, context.loss};
  if (context.norm_before) line.norms = {*context.norm_before, context.norm};
  line.distance = context.distance;
  line.seconds = context.seconds;
  line.applied = context.applied;
  if (ruling.verdict == Verdict::unlocated) line.rank = context.rank;
  line.why = alarm_text_;
  journal_->trial(line);
}

void Supervisor::replayed(std::int64_t step, const RerunContext& context) {
  Ruling ruling;
  ruling.decision.step = step;
  write_rerun(context, ruling, "replay");
}

/// Where nothing of what it did over a span helped, it only watches from then on.
void Supervisor::audit(std::int64_t step, bool in_force, std::optional<bool> helped) {
  if (settings_.disarm_after == 0 || !in_force) return;
  if (helped) audited_.emplace_back(step, *helped);
  while (!audited_.empty() && audited_.front().first <= step - settings_.disarm_after) audited_.pop_front();
  if (audited_.size() < kFewestAudited || step < settings_.disarm_after) return;
  if (std::any_of(audited_.begin(), audited_.end(), [](const auto& one) { return one.second; })) return;
  const std::string why = "nothing that was done in the last " + std::to_string(settings_.disarm_after) +
                          " steps helped (" + std::to_string(audited_.size()) + " occasions)";
  if (!has_gate()) {
    set_mode(io::JournalModeKind::watch, why);
  } else if (disarm_step_ == 0) {
    // The step after this one may be running: it stays as it is, whenever this one is settled.
    disarm_step_ = step + 2;
    disarm_why_ = why;
  }
}

const Decision& Supervisor::observe(const Observation& observation, const io::StepContext& context) {
  hear(observation);
  return decide(context).decision;
}

void Supervisor::set_mode(io::JournalModeKind mode, const std::string& why) {
  if (mode == mode_) return;
  audited_.clear();
  disarm_step_ = 0;
  mode_ = mode;
  tell_mode({mode, why}, plan_.step + 1);
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
  tell_late_modes();
  const bool journal = !journal_ || journal_->close();
  return (!signals_ || signals_->close()) && journal;
}

}  // namespace gnmr::run
