// SPDX-License-Identifier: Apache-2.0
#include "gnmr/core/judge.h"

#include <algorithm>
#include <bitset>
#include <charconv>
#include <cmath>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "gnmr/core/error.h"
#include "gnmr/core/error_history.h"

namespace gnmr {
namespace {

/// Which of the last decisions had a rerun.
class RerunWindow {
 public:
  std::uint32_t count() const { return static_cast<std::uint32_t>(decisions_.count()); }

  void add(bool rerun) {
    decisions_ <<= 1;
    decisions_[0] = rerun;
  }

  void mark_last() { decisions_[0] = true; }

  std::vector<std::uint32_t> ago() const {
    std::vector<std::uint32_t> found;
    for (std::uint32_t i = 0; i < kRerunMemory; ++i) {
      if (decisions_[i]) found.push_back(i);
    }
    return found;
  }

  void restore(std::span<const std::uint32_t> ago) {
    decisions_.reset();
    for (const std::uint32_t decision : ago) decisions_.set(decision);
  }

 private:
  std::bitset<kRerunMemory> decisions_;  // the last one first
};

/// Who is asked for the candidates of a decision.
enum class Basis : std::uint8_t { nobody, norms, evidence };

std::vector<double> checked_expected(const JudgeSettings& settings) {
  if (settings.places < 1 || settings.places > kMostPlaces) {
    throw Error("places: expected 1 to " + std::to_string(kMostPlaces) + ", got " + std::to_string(settings.places));
  }
  std::vector<double> expected = settings.expected;
  if (expected.empty()) expected.assign(settings.places, 0.0);
  if (expected.size() != settings.places) {
    throw Error("expected errors: expected one for each of " + std::to_string(settings.places) +
                " places or none, got " + std::to_string(expected.size()));
  }
  for (const double error : expected) {
    if (!std::isfinite(error) || error < 0) throw Error("expected errors: expected numbers that are not negative");
  }
  return expected;
}

Selector checked_selector(const Options& options, bool can_rerun) {
  if (options.selector == Selector::automatic) return can_rerun ? Selector::trial : Selector::norms;
  if (options.selector == Selector::trial && !can_rerun) {
    throw Error("option `selector`: `trial` needs a backend that can run a step again");
  }
  return options.selector;
}

Guard checked_guard(const Options& options, bool can_rerun) {
  if (options.guard == Guard::replay && !can_rerun) {
    throw Error("option `guard`: `replay` needs a backend that can run a step again");
  }
  return options.guard;
}

[[noreturn]] void reject(std::int64_t step, const std::string& what) {
  throw Error("[step " + std::to_string(step) + "] expected " + what);
}

}  // namespace

const char* to_string(Action action) {
  switch (action) {
    case Action::proceed:
      return "proceed";
    case Action::hold:
      return "hold";
    case Action::replay:
      return "replay";
    case Action::trial:
      return "trial";
  }
  return "proceed";
}

const char* to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::none:
      return "none";
    case Verdict::numeric:
      return "numeric";
    case Verdict::common:
      return "common";
    case Verdict::unlocated:
      return "unlocated";
  }
  return "none";
}

struct Judge::Impl {
  Impl(std::vector<Unit> units, const Options& options, const JudgeSettings& settings)
      : controller(std::move(units), options),
        errors(controller.units().size(), checked_expected(settings), options),
        selector(checked_selector(options, settings.can_rerun)),
        guard(checked_guard(options, settings.can_rerun)) {
    const std::size_t count = controller.units().size();
    patrol.reserve(count);
    trial.reserve(count);
    candidates.reserve(count);
    clip.resize(guard == Guard::clip ? count : 0);
  }

  void check_errors(std::int64_t step, std::span<const double> given) const;
  void judge(std::span<const double> given, ErrorSource source, StandingOut& found);
  void raise_alarm();
  void choose_basis();
  void choose_action(bool may_rerun);
  void set_clip(const Observation& observation);
  const Decision& decide_on_basis();
  const Ruling& give_verdict(const Observation& observation, std::span<const double> given);
  const Ruling& finish(Ruling end, const StandingOut& found, bool rerun);

  bool is_complete() const;
  bool has_free_risk() const {
    return std::any_of(alarm.risks.begin(), alarm.risks.end(),
                       [this](UnitIndex unit) { return controller.is_free(unit); });
  }
  bool has_non_finite_risk() const { return alarm.sampled > alarm.finite; }
  std::uint32_t reruns_left() const {
    const auto most = static_cast<std::uint32_t>(controller.options().max_trials);
    return most - std::min(most, reruns.count());
  }

  Controller controller;
  ErrorHistory errors;
  Selector selector;
  Guard guard;
  RerunWindow reruns;

  // The step that is being heard.
  bool pending = false;
  Alarm alarm;
  Hearing hearing;
  Ruling ruling;
  StandingOut patrol;
  StandingOut trial;
  std::vector<Candidate> candidates;
  Basis basis = Basis::nobody;
  Action without_trial = Action::proceed;
  bool clips = false;
  std::vector<double> clip;
};

void Judge::Impl::check_errors(std::int64_t step, std::span<const double> given) const {
  if (given.empty()) return;
  const std::uint32_t places = errors.places();
  if (given.size() != errors.size()) {
    reject(step, std::to_string(places) + " errors for each of " + std::to_string(controller.units().size()) +
                     " units or none, got " + std::to_string(given.size()));
  }
  const auto negative = std::find_if(given.begin(), given.end(), [](double error) { return error < 0; });
  if (negative == given.end()) return;
  const auto index = static_cast<std::size_t>(negative - given.begin());
  char text[32];
  reject(step, "errors that are not negative, got " +
                   std::string(text, std::to_chars(text, text + sizeof text, *negative).ptr) + " for place " +
                   std::to_string(index % places) + " of unit `" + controller.units()[index / places].name + "`");
}

/// Finds who stands out and was not in recovery, and of these the candidates.
void Judge::Impl::judge(std::span<const double> given, ErrorSource source, StandingOut& found) {
  found.clear();
  candidates.clear();
  if (given.empty()) {
    errors.discard();
    return;
  }
  errors.judge(given, source, found);
  found.remove_if([this](UnitIndex unit) { return controller.steps_left(unit) > 0; });
  for (std::size_t i = 0; i < found.units.size(); ++i) {
    if (!controller.is_free(found.units[i])) continue;
    candidates.push_back({.severity = found.excesses[i], .unit = found.units[i], .kind = RiskKind::error});
  }
}

bool Judge::Impl::is_complete() const {
  for (UnitIndex unit = 0; unit < controller.units().size(); ++unit) {
    if (controller.was_sampled(unit) && !errors.was_measured(unit) && controller.is_free(unit)) return false;
  }
  return true;
}

void Judge::Impl::raise_alarm() {
  const bool by_errors = selector != Selector::norms && !candidates.empty();
  hearing.alarmed = by_errors || has_non_finite_risk();
  if (hearing.alarmed || !has_free_risk()) return;
  hearing.dismissed = selector != Selector::norms && is_complete();
  hearing.alarmed = !hearing.dismissed;
}

/// Who decides where no trial does, and who that is as far as it is known before the decision.
void Judge::Impl::choose_basis() {
  const bool stands_out = !candidates.empty();
  switch (selector) {
    case Selector::automatic:
    case Selector::norms:
      basis = Basis::norms;
      break;
    case Selector::evidence:
      basis = Basis::evidence;
      break;
    case Selector::evidence_after_alarm:
      basis = alarm.raised() ? Basis::evidence : Basis::nobody;
      break;
    case Selector::trial:
      basis = !hearing.alarmed ? Basis::nobody : stands_out ? Basis::evidence : Basis::norms;
      break;
  }
  if (basis == Basis::evidence) return;
  candidates.clear();
  if (basis == Basis::nobody || alarm.common) return;
  for (const UnitIndex unit : alarm.risks) {
    if (controller.is_free(unit)) candidates.push_back({.unit = unit});
  }
}

void Judge::Impl::choose_action(bool may_rerun) {
  const bool wants_trial = selector == Selector::trial && hearing.alarmed;
  const bool wants_replay = guard == Guard::replay && !wants_trial && !candidates.empty();
  without_trial = Action::proceed;
  if (guard == Guard::skip && !candidates.empty()) without_trial = Action::hold;
  if (wants_replay && may_rerun) without_trial = Action::replay;
  hearing.action = wants_trial && may_rerun ? Action::trial : without_trial;
  hearing.spent = (wants_trial || wants_replay) && !may_rerun;
}

void Judge::Impl::set_clip(const Observation& observation) {
  clips = guard == Guard::clip && !candidates.empty();
  if (!clips) return;
  std::fill(clip.begin(), clip.end(), 1.0);
  for (const Candidate& candidate : candidates) {
    if (!controller.was_sampled(candidate.unit)) continue;
    const double norm = observation.norms[candidate.unit];
    const double mean = controller.mean_norm(candidate.unit);
    if (!std::isfinite(norm)) {
      clip[candidate.unit] = 0;
    } else if (mean > 0 && norm > mean) {
      clip[candidate.unit] = mean / norm;
    }
  }
}

const Decision& Judge::Impl::decide_on_basis() {
  switch (basis) {
    case Basis::norms:
      return controller.decide();
    case Basis::evidence:
      return controller.decide_among(candidates, alarm.common && candidates.empty());
    case Basis::nobody:
      break;
  }
  return controller.decide_among({}, alarm.common);
}

/// A trial's norms and errors say what was wrong; the step is decided.
const Ruling& Judge::Impl::give_verdict(const Observation& observation, std::span<const double> given) {
  alarm = controller.observe(observation);
  judge(given, ErrorSource::trial, trial);
  Verdict verdict = Verdict::unlocated;
  if (!trial.units.empty()) {
    verdict = Verdict::numeric;
  } else if (has_free_risk() || has_non_finite_risk()) {
    verdict = Verdict::common;
  }
  const Decision& decision = controller.decide_among(candidates, verdict == Verdict::common);
  return finish({.verdict = verdict, .decision = decision}, trial, true);
}

/// The end of every step: what was judged is learned, and the step counts.
const Ruling& Judge::Impl::finish(Ruling end, const StandingOut& found, bool rerun) {
  errors.learn();
  reruns.add(rerun);
  pending = false;
  ruling = end;
  ruling.units = found.units;
  ruling.errors = found.errors;
  ruling.excesses = found.excesses;
  ruling.places = found.places;
  return ruling;
}

Judge::Judge(std::vector<Unit> units, const Options& options, const JudgeSettings& settings)
    : impl_(std::make_unique<Impl>(std::move(units), options, settings)) {}
Judge::Judge(Judge&&) noexcept = default;
Judge& Judge::operator=(Judge&&) noexcept = default;
Judge::~Judge() = default;

const Hearing& Judge::hear(const Observation& observation, std::span<const double> patrol, bool may_rerun) {
  Impl& self = *impl_;
  self.check_errors(observation.step, patrol);
  self.alarm = self.controller.observe(observation);
  self.pending = true;
  self.judge(patrol, ErrorSource::patrol, self.patrol);
  self.hearing = {.step = observation.step, .standing_out = self.patrol.units};
  self.raise_alarm();
  self.choose_basis();
  self.choose_action(may_rerun && self.reruns_left() > 0);
  self.set_clip(observation);
  if (self.clips && self.hearing.action != Action::trial) self.hearing.clip = self.clip;
  return self.hearing;
}

const Ruling& Judge::decide() {
  Impl& self = *impl_;
  if (!self.pending) throw Error("expected hear() before decide()");
  const Decision& decision = self.decide_on_basis();
  Ruling end{.action = self.without_trial, .decision = decision};
  if (self.clips) end.clip = self.clip;
  if (end.action == Action::replay) {
    // A unit that was released and admitted again ran high: a rerun would not change it.
    const auto was_low = [&](UnitIndex unit) {
      return !std::binary_search(decision.released.begin(), decision.released.end(), unit);
    };
    if (std::none_of(decision.admitted.begin(), decision.admitted.end(), was_low)) end.action = Action::proceed;
  }
  return self.finish(end, self.patrol, self.hearing.action == Action::trial || end.action == Action::replay);
}

const Ruling& Judge::conclude(const Observation& rerun, std::span<const double> errors) {
  Impl& self = *impl_;
  if (!self.pending || self.hearing.action != Action::trial) {
    throw Error("expected hear() that asks for a trial before conclude()");
  }
  if (rerun.step != self.hearing.step) {
    reject(rerun.step, "the rerun of step " + std::to_string(self.hearing.step));
  }
  self.controller.check(rerun);
  self.check_errors(rerun.step, errors);
  self.controller.withdraw();
  return self.give_verdict(rerun, errors);
}

const Ruling& Judge::conclude_alone(const Observation& trial, std::span<const double> errors) {
  Impl& self = *impl_;
  if (self.pending) reject(trial.step, "no step to be heard before conclude_alone()");
  self.check_errors(trial.step, errors);
  return self.give_verdict(trial, errors);
}

const Ruling& Judge::pass_over() {
  Impl& self = *impl_;
  if (!self.pending) throw Error("expected hear() before pass_over()");
  const Decision& decision = self.controller.decide_among({}, self.alarm.common);
  return self.finish({.decision = decision}, self.patrol, false);
}

void Judge::count_rerun() { impl_->reruns.mark_last(); }

void Judge::withdraw() {
  Impl& self = *impl_;
  if (!self.pending) return;
  self.controller.withdraw();
  self.errors.discard();
  self.pending = false;
}

const Controller& Judge::controller() const { return impl_->controller; }
const Alarm& Judge::alarm() const { return impl_->alarm; }
Selector Judge::selector() const { return impl_->selector; }
Guard Judge::guard() const { return impl_->guard; }
std::uint32_t Judge::reruns_left() const { return impl_->reruns_left(); }
double Judge::error_limit(UnitIndex unit, std::uint32_t place) const { return impl_->errors.limit(unit, place); }

JudgeState Judge::save() const {
  JudgeState state{.controller = impl_->controller.save(),
                   .places = impl_->errors.places(),
                   .errors = {},
                   .reruns_ago = impl_->reruns.ago()};
  state.errors.reserve(impl_->errors.size());
  for (UnitIndex unit = 0; unit < state.controller.units.size(); ++unit) {
    const std::span<const ErrorState> places = impl_->errors.of_unit(unit);
    state.errors.insert(state.errors.end(), places.begin(), places.end());
  }
  return state;
}

RestoreReport Judge::restore(const JudgeState& state) {
  check_state(state);
  Impl& self = *impl_;
  const double error_beta = self.controller.options().error_beta;
  RestoreReport report = self.controller.restore(state.controller);
  if (state.places != 0) {
    report.places_changed = state.places != self.errors.places();
    report.error_beta_changed = state.controller.options.error_beta != error_beta;
  }
  self.errors.forget();
  self.reruns.restore(state.reruns_ago);
  self.pending = false;
  self.alarm = {};
  self.hearing = {};
  self.ruling = {};
  if (state.places == 0 || report.places_changed || report.error_beta_changed) return report;
  std::unordered_map<std::string_view, std::size_t> saved;
  for (std::size_t i = 0; i < state.controller.units.size(); ++i) saved.emplace(state.controller.units[i].name, i);
  for (UnitIndex unit = 0; unit < self.controller.units().size(); ++unit) {
    const auto found = saved.find(self.controller.units()[unit].name);
    if (found == saved.end()) continue;
    self.errors.restore_unit(unit, std::span(state.errors).subspan(found->second * state.places, state.places));
  }
  return report;
}

}  // namespace gnmr
