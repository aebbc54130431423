// SPDX-License-Identifier: Apache-2.0
#include "gnmr/core/controller.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "gnmr/core/budget.h"
#include "gnmr/core/error.h"
#include "gnmr/core/error_history.h"
#include "gnmr/core/error_levels.h"
#include "gnmr/core/message_text.h"
#include "gnmr/core/norm_signals.h"
#include "gnmr/core/path_table.h"
#include "gnmr/core/rerun_window.h"
#include "gnmr/core/selection.h"
#include "gnmr/core/step_planner.h"

namespace gnmr {
namespace {

std::vector<Unit> checked(std::vector<Unit> units) {
  std::unordered_set<std::string_view> names;
  for (const Unit& unit : units) {
    if (unit.name.empty()) throw Error("units: expected a name for every unit, got an empty one");
    if (!names.insert(unit.name).second) throw Error("units: expected unique names, got `" + unit.name + "` twice");
  }
  return units;
}

const Options& checked(const Options& options) {
  validate(options);
  return options;
}

std::vector<double> checked_errors(const Backend& backend) {
  if (backend.sites > kMostSites) {
    throw Error("sites: expected at most " + std::to_string(kMostSites) + ", got " + std::to_string(backend.sites));
  }
  std::vector<double> expected = backend.expected_errors;
  if (expected.empty()) expected.assign(backend.sites, 0.0);
  if (expected.size() != backend.sites) {
    throw Error("expected errors: expected one for each of " + std::to_string(backend.sites) + " sites or none, got " +
                std::to_string(expected.size()));
  }
  for (const double error : expected) {
    if (!std::isfinite(error) || error < 0) throw Error("expected errors: expected numbers that are not negative");
  }
  return expected;
}

PlanRules checked_rules(const Options& options, const Backend& backend) {
  const PlanRules rules{.selector = selector_in_force(options, backend),
                        .guard = guard_in_force(options, backend),
                        .can_hold = backend.can_hold};
  check_guard_with_lag(options, rules);
  return rules;
}

}  // namespace

void check_options(const Options& options, const Backend& backend) {
  validate(options);
  checked_errors(backend);
  checked_rules(options, backend);
}

struct Controller::Impl {
  Impl(std::vector<Unit> given, const Options& given_options, const Backend& given_backend)
      : units(checked(std::move(given))),
        options(checked(given_options)),
        backend(given_backend),
        rules(checked_rules(options, backend)),
        signals(units, options),
        errors(units.size(), checked_errors(backend), options),
        levels(units, errors.sites(), options),
        budget(units, options),
        selection(rules.selector, rules.guard, signals, errors, budget),
        reruns(options.max_trials),
        planner(rules),
        paths(units.size()) {
    findings.reserve(units.size());
    clip.resize(rules.guard == Guard::clip ? units.size() : 0);
    planner.known_units().recovered.reserve(units.size());
    planner.known_units().flags.reserve(backend.can_hold ? units.size() : 0);
    if (gate_judges_errors()) {
      errors.keep_patrol_limits();
      planner.known_units().error_limits.reserve(errors.size());
    }
    measured.reserve(levels.is_on() ? units.size() : 0);
  }

  bool is_late() const { return options.lag == 1; }

  RerunRoom rerun_room() const { return {.window = reruns, .budget = budget}; }

  /// Whether the decision after so many others is one of the first, in which hardly anything calls a trial.
  bool is_early(std::uint64_t decisions) const {
    return rules.selector == Selector::trial && 2 * decisions < 3 * static_cast<std::uint64_t>(options.warmup_samples);
  }

  /// Of the decision after so many others, by what is known now.
  std::uint32_t doubt(std::uint64_t decisions) const { return is_early(decisions) ? kMostDoubt : reruns.doubt().value; }

  /// Lag 1: whether a gate that may close has limits of errors.
  bool gate_judges_errors() const { return is_late() && backend.can_hold && rules.selector == Selector::trial; }
  std::int64_t step() const { return plan.step; }

  void check_fields(const StepReport& report) const;
  void check_errors(const StepReport& report) const;

  // Lag 0.
  void begin_first_run(std::int64_t number);
  void begin_rerun();
  void report_first_run(const StepReport& report);
  void report_rerun(const StepReport& report);

  // Lag 1.
  void drop_limits_of_others();
  void plan_late(std::int64_t number);
  void begin_late(std::int64_t number);
  void report_late(const StepReport& report);
  void settle_run(const PlannedStep& step, const StepReport& report);

  // Both.
  void plan_measurements();
  void judge(const StepReport& report, ErrorSource source);
  void decide(bool common, std::uint32_t reruns_to_come);
  void decide_without_samples(std::int64_t number, std::uint32_t reruns_to_come);
  void give_verdict(const StepReport& report, std::uint32_t reruns_to_come);
  bool admitted_a_low_unit() const;
  void finish(bool rerun);

  /// Where the step of lag 0 is.
  enum class Phase : std::uint8_t { idle, running, rerun_due, rerunning };

  std::vector<Unit> units;
  Options options;
  Backend backend;
  PlanRules rules;
  NormSignals signals;
  ErrorHistory errors;
  ErrorLevels levels;
  Budget budget;
  Selection selection;
  RerunWindow reruns;
  StepPlanner planner;
  PathTable paths;
  Mode mode = Mode::armed;
  Phase phase = Phase::idle;
  StepPlan plan;
  Outcome outcome;
  std::vector<UnitIndex> measured;  // by the plan, although they run high
  std::vector<Finding> findings;    // in force: of the trial, else of the patrol
  std::vector<double> clip;
  std::int64_t last_step = 0;  // of the last decision
};

/// Fields that are reserved, or have no meaning with this lag.
void Controller::Impl::check_fields(const StepReport& report) const {
  if (report.held && !is_late()) reject_step(report.step, "no held update: with lag 0 there is no gate");
  if (!report.may_rerun && is_late()) reject_step(report.step, "may_rerun as it is: with lag 1 the plan has said it");
  if (!report.tokens.empty()) reject_step(report.step, "no tokens: they are not supported yet");
  if (!report.scale_fit.empty()) reject_step(report.step, "no scale_fit: it is not supported yet");
}

void Controller::Impl::check_errors(const StepReport& report) const {
  const std::span<const double> given = report.errors;
  if (given.empty()) return;
  const std::uint32_t sites = errors.sites();
  if (given.size() != errors.size()) {
    reject_step(report.step, std::to_string(sites) + " errors for each of " + std::to_string(units.size()) +
                                 " units or none, got " + std::to_string(given.size()));
  }
  const auto negative = std::find_if(given.begin(), given.end(), [](double error) { return error < 0; });
  if (negative == given.end()) return;
  const auto index = static_cast<std::size_t>(negative - given.begin());
  reject_step(report.step, "errors that are not negative, got " + shortest_text(*negative) + " for site " +
                               std::to_string(index % sites) + " of unit `" + units[index / sites].name + "`");
}

/// Finds the units with errors above their limits that were not in recovery.
void Controller::Impl::judge(const StepReport& report, ErrorSource source) {
  findings.clear();
  if (report.errors.empty()) {
    errors.discard();
  } else {
    errors.judge(report.errors, source, findings);
    std::erase_if(findings, [this](const Finding& finding) { return budget.is_in_recovery(finding.unit); });
  }
  auto asking = ErrorsThatAsk::all;
  if (source == ErrorSource::patrol && rules.selector == Selector::trial) {
    asking = is_early(budget.decisions()) ? ErrorsThatAsk::infinite : ErrorsThatAsk::clear;
  }
  selection.find_candidates(findings, asking);
}

/// Names the units in recovery whose turn it is, so that standing recoveries are confirmed or end.
void Controller::Impl::plan_measurements() {
  measured.clear();
  if (levels.is_on() && plan.pass == PassKind::step) {
    for (const UnitIndex unit : plan.recovered) {
      if ((plan.step + unit) % kReviewInterval == 0) measured.push_back(unit);
    }
  }
  plan.measure = measured;
}

/// The decision on the observed norms; it leaves enough for reruns that may come.
void Controller::Impl::decide(bool common, std::uint32_t reruns_to_come) {
  signals.history().commit();
  budget.set_aside(reruns_to_come);
  const bool reviews = levels.is_on() && !common && signals.alarm().sampled > 0 &&
                       budget.decisions() % kReviewInterval == kReviewInterval - 1;
  StandingClaims claims;
  if (reviews) claims = levels.find_claims(budget.decisions(), budget.standing(), budget.filling());
  budget.release(signals.history(), common, claims);
  const std::span<Candidate> candidates = selection.candidates();  // first: who asks follows from it
  budget.admit(candidates, selection.asking(), signals.history(), claims);
  last_step = outcome.step;
  outcome.decision = {.step = outcome.step,
                      .common = common,
                      .recovered = budget.recovered(),
                      .admitted = budget.admitted(),
                      .denied = budget.denied(),
                      .futile = budget.futile(),
                      .released = budget.released(),
                      .standing = budget.standing(),
                      .newly_standing = budget.newly_standing(),
                      .filling = budget.filling(),
                      .recovered_cost = budget.limits().cost()};
}

/// Locks and waits go on; nothing is learned, and no unit asks.
void Controller::Impl::decide_without_samples(std::int64_t number, std::uint32_t reruns_to_come) {
  errors.discard();
  budget.set_aside(reruns_to_come);
  budget.release_without_samples(signals.history());
  budget.admit({}, {}, signals.history(), {});
  last_step = number;
  outcome.decision = {.step = number,
                      .recovered = budget.recovered(),
                      .released = budget.released(),
                      .standing = budget.standing(),
                      .filling = budget.filling(),
                      .recovered_cost = budget.limits().cost()};
}

/// Norms and errors of a trial say what was wrong, and decide.
void Controller::Impl::give_verdict(const StepReport& report, std::uint32_t reruns_to_come) {
  outcome.alarm = signals.observe({.step = report.step, .norms = report.norms, .sampled = report.sampled});
  judge(report, ErrorSource::trial);
  selection.ask_by_errors();
  outcome.verdict = Verdict::unlocated;
  if (!findings.empty()) {
    outcome.verdict = Verdict::numeric;
  } else if (selection.has_free_risk() || selection.has_non_finite_risk()) {
    outcome.verdict = Verdict::common;
  }
  outcome.findings = findings;
  decide(outcome.verdict == Verdict::common, reruns_to_come);
}

/// The end of a decision: errors are learned from, and the decision counts.
void Controller::Impl::finish(bool rerun) {
  outcome.capped = outcome.capped || budget.was_capped();
  levels.learn(errors.judged(), budget.decisions() - 1);
  errors.learn();
  reruns.add(rerun, rules.selector == Selector::trial ? outcome.verdict : Verdict::none);
  outcome.decided_step = outcome.decision.step;
  outcome.in_force_from = outcome.decision.step + 1 + options.lag;
}

/// A unit that was released and admitted again ran high: a rerun would not change it.
bool Controller::Impl::admitted_a_low_unit() const {
  const std::span<const UnitIndex> released = budget.released();
  return std::any_of(budget.admitted().begin(), budget.admitted().end(), [released](UnitIndex unit) {
    return !std::binary_search(released.begin(), released.end(), unit);
  });
}

void Controller::Impl::begin_first_run(std::int64_t number) {
  plan = {.step = number, .batch = planner.take_batch(number), .mode = mode};
  plan.recovered = mode == Mode::armed ? budget.recovered() : std::span<const UnitIndex>();
  plan.path = mode == Mode::high ? paths.all_high() : paths.high(plan.recovered);
  plan_measurements();
  phase = Phase::running;
}

void Controller::Impl::begin_rerun() {
  plan.pass = outcome.rerun;
  plan.again = true;
  const bool is_trial = plan.pass == PassKind::trial;
  plan.recovered = budget.recovered();
  plan.path = is_trial ? paths.all_high() : paths.high(plan.recovered);
  plan_measurements();
  phase = Phase::rerunning;
}

void Controller::Impl::report_first_run(const StepReport& report) {
  if (report.done == Completion::rerun_failed) reject_step(report.step, "a rerun before one that failed");
  if (report.done == Completion::dropped) {
    signals.discard();
    findings.clear();
    outcome = {.step = report.step, .action = Action::hold, .alarm = {.step = report.step}};
    decide_without_samples(report.step, 0);
    finish(false);
    phase = Phase::idle;
    return;
  }
  const Alarm& alarm = signals.observe({.step = report.step, .norms = report.norms, .sampled = report.sampled});
  judge(report, ErrorSource::patrol);
  const bool armed = plan.mode == Mode::armed;
  const bool may_rerun = armed && report.may_rerun && rerun_room().allows();
  const Request& request = selection.choose(may_rerun, doubt(budget.decisions()));
  outcome = {.step = report.step,
             .alarmed = request.alarmed,
             .dismissed = request.dismissed,
             .spent = request.spent,
             .capped = request.spent && !budget.can_pay_rerun(),
             .findings = findings,
             .alarm = alarm};
  if (request.clips) selection.set_clip(report.norms, clip);
  if (request.wants_trial) {
    outcome.action = Action::rerun;
    outcome.rerun = PassKind::trial;
    phase = Phase::rerun_due;
    return;
  }
  decide(selection.is_common(), request.wants_replay ? 1 : 0);
  const bool replays = request.wants_replay && admitted_a_low_unit();
  if (replays) budget.pay_replay();
  finish(replays);
  if (replays) {
    outcome.action = Action::rerun;
    outcome.rerun = PassKind::replay;
  } else if (armed) {
    outcome.action = request.holds ? Action::hold : Action::apply;
    if (request.clips) outcome.clip = clip;
  }
  phase = replays ? Phase::rerun_due : Phase::idle;
}

void Controller::Impl::report_rerun(const StepReport& report) {
  if (report.done == Completion::dropped) reject_step(report.step, "a rerun that is complete or failed, not dropped");
  const bool is_trial = outcome.rerun == PassKind::trial;
  const bool failed = report.done == Completion::rerun_failed;
  if (!failed) {
    if (phase == Phase::rerun_due) reject_step(report.step, "begin() of the rerun before its report");
    signals.check({.step = report.step, .norms = report.norms, .sampled = report.sampled});
  }
  outcome = {.step = report.step,
             .decided_step = outcome.decided_step,
             .in_force_from = outcome.in_force_from,
             .capped = outcome.capped && !is_trial,
             .findings = findings,
             .alarm = outcome.alarm,
             .decision = outcome.decision};
  phase = Phase::idle;
  if (!is_trial) return;  // a replay was decided by its first run
  budget.pay_trial();
  if (failed) {
    // As if the limit had been reached, but it took its time.
    const Request& request = selection.request();
    decide(selection.is_common(), 0);
    outcome.action = request.holds ? Action::hold : Action::apply;
    if (request.clips) outcome.clip = clip;
  } else {
    give_verdict(report, 0);
  }
  finish(true);
}

/// A gate that judges no errors, or those of other sites, can do nothing with the limits of an earlier run.
void Controller::Impl::drop_limits_of_others() {
  std::vector<float>& limits = planner.known_units().error_limits;
  if (!gate_judges_errors() || limits.size() != errors.size()) limits.clear();
}

/// Plans a step with what is known of the units now.
void Controller::Impl::plan_late(std::int64_t number) {
  if (!planner.plan(number, rerun_room())) return;
  PlanState& state = planner.known_units();
  if (!std::exchange(state.recovered_is_next, false)) {
    state.recovered.assign(budget.recovered().begin(), budget.recovered().end());
  }
  if (!backend.can_hold) return;
  state.flags.resize(units.size());
  const std::uint64_t decisions = budget.decisions() + state.undecided.size() - 1;  // before that of the step
  const int doubt_bits = std::countr_zero(doubt(decisions)) << gate_flag::kDoubtShift;
  for (UnitIndex unit = 0; unit < units.size(); ++unit) {
    const int free = budget.is_candidate(unit) ? gate_flag::kFree : 0;
    const int muted = signals.history().is_zero_muted(unit) ? gate_flag::kZeroMuted : 0;
    state.flags[unit] = static_cast<std::uint8_t>(free | muted | doubt_bits);
  }
  state.error_limits.clear();
  if (!gate_judges_errors() || planner.last()->hold == HoldRule::never) return;
  const bool only_for_trial = planner.last()->hold == HoldRule::for_trial && rules.guard != Guard::skip;
  const bool is_full = only_for_trial && budget.is_full_for(2);  // when the step is decided, too
  if (is_full || is_early(decisions)) {
    state.error_limits.assign(errors.size(), std::numeric_limits<float>::infinity());
  } else {
    state.error_limits.assign(errors.patrol_limits().begin(), errors.patrol_limits().end());
  }
}

void Controller::Impl::begin_late(std::int64_t number) {
  plan_late(number);
  const PlannedStep& planned = planner.begin(number, mode == Mode::armed);
  plan = {.step = planned.step,
          .batch = planned.batch,
          .pass = planned.pass,
          .again = planned.again,
          .hold = planned.hold,
          .mode = mode,
          .gate_flags = planner.state().flags};
  if (planned.hold != HoldRule::never) plan.error_limits = planner.state().error_limits;
  if (mode == Mode::armed) plan.recovered = planner.state().recovered;
  const bool is_high = mode == Mode::high || plan.pass == PassKind::trial;
  plan.path = is_high ? paths.all_high() : paths.high(plan.recovered);
  plan_measurements();
}

void Controller::Impl::report_late(const StepReport& report) {
  const PlannedStep* oldest = planner.oldest();
  if (oldest == nullptr || !oldest->begun || oldest->step != report.step) {
    reject_step(report.step, "a step that has begun, and is the oldest without a decision");
  }
  if (report.held && oldest->hold == HoldRule::never) reject_step(report.step, "an update that no gate could hold");
  const bool failed = report.done == Completion::rerun_failed;
  if (failed && oldest->pass == PassKind::step) reject_step(report.step, "a rerun before one that failed");
  const bool is_trial = oldest->pass == PassKind::trial && !failed;
  if (report.done == Completion::dropped) {
    signals.discard();
  } else {
    signals.observe({.step = report.step, .norms = report.norms, .sampled = report.sampled});
  }
  plan_late(report.step + 1);  // whenever a step is reported, the plan after it is the same
  PlannedStep& step = *planner.oldest();
  step.failed = failed;
  if (step.pass == PassKind::trial) budget.pay_trial();
  if (failed) step.pass = PassKind::step;
  outcome = {.step = report.step, .findings = {}, .alarm = signals.alarm()};
  if (report.done == Completion::dropped) {
    findings.clear();
    outcome.alarm.step = report.step;
    outcome.action = Action::hold;
    const bool for_trial = step.hold == HoldRule::for_trial;
    if (report.held && (for_trial || rules.guard == Guard::replay)) {
      outcome.alarmed = true;
      outcome.action = Action::rerun;
      outcome.rerun = for_trial ? PassKind::trial : PassKind::replay;
    }
    decide_without_samples(report.step, planner.to_come_besides() + (outcome.action == Action::rerun ? 1 : 0));
  } else if (is_trial) {
    give_verdict(report, planner.to_come_besides());
  } else {
    settle_run(step, report);
  }
  finish(step.pass != PassKind::step || failed);
  const bool comes_again = outcome.action == Action::rerun;
  planner.decided(comes_again ? outcome.rerun : PassKind::step, outcome.called);
}

/// A run that is no trial: held by its gate, or free.
void Controller::Impl::settle_run(const PlannedStep& step, const StepReport& report) {
  judge(report, ErrorSource::patrol);
  const Request& request = selection.choose(/*may_rerun=*/false, doubt(budget.decisions()));
  outcome.findings = findings;
  outcome.alarmed = request.alarmed;
  outcome.dismissed = request.dismissed;
  outcome.spent = request.spent;
  const bool by_trial = rules.selector == Selector::trial;
  if (report.held) {
    outcome.alarmed = true;
    outcome.dismissed = false;
    outcome.spent = false;
    const bool for_trial = step.hold == HoldRule::for_trial;
    const bool comes_again = for_trial || rules.guard == Guard::replay;
    outcome.action = comes_again ? Action::rerun : Action::hold;
    outcome.rerun = !comes_again ? PassKind::step : for_trial ? PassKind::trial : PassKind::replay;
    if (for_trial) {
      decide_without_samples(step.step, planner.to_come_besides() + 1);
      return;
    }
  } else if (!by_trial) {
    outcome.spent = outcome.spent && step.hold == HoldRule::never;
  } else {
    // The update was made: only what the gate could not know may call a trial.
    const bool found = selection.has_free_finding();
    const bool is_plain = step.pass == PassKind::step && !step.failed;
    outcome.called = found && is_plain && step.in_force && planner.can_call(rerun_room()) && selection.trial_pays();
    if (outcome.called || (!found && step.hold == HoldRule::for_trial)) {
      outcome.spent = false;
      outcome.alarmed = outcome.called;
      selection.ask_nobody();
    }
  }
  outcome.capped = outcome.spent && !budget.can_pay_rerun(planner.to_come_besides());
  const bool is_to_come = outcome.called || outcome.action == Action::rerun;
  decide(selection.is_common(), planner.to_come_besides() + (is_to_come ? 1 : 0));
}

Controller::Controller(std::vector<Unit> units, const Options& options, const Backend& backend)
    : impl_(std::make_unique<Impl>(std::move(units), options, backend)) {}
Controller::Controller(Controller&&) noexcept = default;
Controller& Controller::operator=(Controller&&) noexcept = default;
Controller::~Controller() = default;

const StepPlan& Controller::begin(std::int64_t step) {
  Impl& self = *impl_;
  if (self.is_late()) {
    const PlannedStep* const last = self.planner.last();
    const bool again = last != nullptr && last->begun && last->step == step;
    if (!again) self.begin_late(step);
    return self.plan;
  }
  const bool is_same = step == self.plan.step;
  const bool has_rerun = self.phase == Impl::Phase::rerun_due || self.phase == Impl::Phase::rerunning;
  if (has_rerun && !is_same) {
    reject_step(step, "the rerun of step " + std::to_string(self.plan.step) + ", or its report as failed, first");
  }
  if (self.phase == Impl::Phase::rerun_due) {
    self.begin_rerun();
  } else if (self.phase == Impl::Phase::idle || !is_same) {
    self.begin_first_run(step);
  }
  return self.plan;
}

const Outcome& Controller::report(const StepReport& report) {
  Impl& self = *impl_;
  self.check_fields(report);
  self.check_errors(report);
  if (self.is_late()) {
    self.report_late(report);
    return self.outcome;
  }
  if (self.phase == Impl::Phase::idle) reject_step(report.step, "begin() before report()");
  if (report.step != self.plan.step) reject_step(report.step, "the report of step " + std::to_string(self.plan.step));
  if (self.phase == Impl::Phase::running) {
    self.report_first_run(report);
  } else {
    self.report_rerun(report);
  }
  return self.outcome;
}

void Controller::set_mode(Mode mode) { impl_->mode = mode; }
Mode Controller::mode() const { return impl_->mode; }
Signals Controller::signals(UnitIndex unit) const { return impl_->signals.history().signals(unit); }
double Controller::mean_norm(UnitIndex unit) const { return impl_->signals.history().mean(unit); }
double Controller::error_limit(UnitIndex unit, std::uint32_t site) const { return impl_->errors.limit(unit, site); }
double Controller::usual_error(UnitIndex unit, std::uint32_t site) const {
  return impl_->levels.usual_error(unit, site, impl_->budget.decisions());
}
std::uint32_t Controller::steps_left(UnitIndex unit) const { return impl_->budget.steps_left(unit); }
std::span<const UnitIndex> Controller::recovered() const { return impl_->budget.recovered(); }
std::span<const UnitIndex> Controller::standing() const { return impl_->budget.standing(); }
std::uint32_t Controller::reruns_left() const { return impl_->reruns.left(); }
bool Controller::rerun_may_be() const { return impl_->rerun_room().allows(); }
const std::vector<Unit>& Controller::units() const { return impl_->units; }
const Options& Controller::options() const { return impl_->options; }
const Backend& Controller::backend() const { return impl_->backend; }
Selector Controller::selector() const { return impl_->rules.selector; }
Guard Controller::guard() const { return impl_->rules.guard; }
std::uint32_t Controller::max_recovered() const { return impl_->budget.limits().max_units(); }
std::int64_t Controller::max_recovered_cost() const { return impl_->budget.limits().max_cost(); }
std::int64_t Controller::total_cost() const { return impl_->budget.limits().total_cost(); }
std::uint64_t Controller::decisions() const { return impl_->budget.decisions(); }
const PlanState& Controller::plan_state() const { return impl_->planner.state(); }

ControllerState Controller::save() const {
  const Impl& self = *impl_;
  ControllerState state{.options = self.options,
                        .decisions = self.budget.decisions(),
                        .last_step = self.last_step,
                        .units = std::vector<UnitState>(self.units.size()),
                        .sites = self.errors.sites(),
                        .errors = {},
                        .levels = {},
                        .reruns_ago = self.reruns.ago(),
                        .doubt = self.reruns.doubt(),
                        .high_bucket = self.budget.bucket().save()};
  const std::uint32_t sites = self.errors.sites();
  if (self.levels.has_any()) state.levels.resize(self.units.size() * sites);
  state.errors.reserve(self.errors.size());
  for (UnitIndex unit = 0; unit < self.units.size(); ++unit) {
    UnitState& saved = state.units[unit];
    saved.name = self.units[unit].name;
    self.signals.history().save_unit(unit, saved);
    self.budget.save_unit(unit, self.signals.history(), saved);
    const std::span<const ErrorState> usual = self.errors.of_unit(unit);
    state.errors.insert(state.errors.end(), usual.begin(), usual.end());
    if (state.levels.empty()) continue;
    self.levels.save_unit(unit, state.decisions, std::span(state.levels).subspan(std::size_t{unit} * sites, sites));
  }
  // Levels that are forgotten are not known to another controller either.
  const auto is_empty = [](const LevelState& level) { return level.samples == 0; };
  if (std::all_of(state.levels.begin(), state.levels.end(), is_empty)) state.levels.clear();
  return state;
}

RestoreReport Controller::restore(const ControllerState& state, const PlanState& plan) {
  check_state(state);
  check_plan(plan, impl_->units.size());
  auto fresh = std::make_unique<Impl>(impl_->units, impl_->options, impl_->backend);
  const Options& options = fresh->options;
  History& history = fresh->signals.history();
  RestoreReport report;
  report.beta_changed = state.options.beta != options.beta;
  report.noise_beta_changed = state.options.noise_beta != options.noise_beta;
  report.window_changed = state.options.window != options.window;
  if (state.sites != 0 && fresh->errors.sites() != 0) {
    report.sites_changed = state.sites != fresh->errors.sites();
    report.error_beta_changed = state.options.error_beta != options.error_beta;
  }
  const bool has_errors = state.sites == fresh->errors.sites() && state.sites != 0 && !report.error_beta_changed;
  const bool has_levels = !state.levels.empty() && fresh->levels.is_on() && !report.sites_changed;
  std::unordered_map<std::string_view, std::size_t> saved;
  for (std::size_t index = 0; index < state.units.size(); ++index) saved.emplace(state.units[index].name, index);
  const WeightTable mean_weights = history.start_from(state.units);
  for (UnitIndex unit = 0; unit < fresh->units.size(); ++unit) {
    const auto found = saved.find(fresh->units[unit].name);
    if (found == saved.end()) {
      report.new_units.push_back(fresh->units[unit].name);
      continue;
    }
    const UnitState& old = state.units[found->second];
    history.restore_unit(unit, old, {.means = !report.beta_changed, .changes = !report.noise_beta_changed},
                         mean_weights);
    fresh->budget.restore_unit(unit, history, old, fresh->levels.is_on());
    if (has_levels) {
      fresh->levels.restore_unit(unit, state.decisions,
                                 std::span(state.levels).subspan(found->second * state.sites, state.sites));
    }
    if (has_errors) {
      fresh->errors.restore_unit(unit, std::span(state.errors).subspan(found->second * state.sites, state.sites));
    }
    saved.erase(found);
  }
  for (const UnitState& unit : state.units) {
    if (saved.contains(unit.name)) report.unknown_units.push_back(unit.name);
  }
  const std::vector<UnitIndex> released = fresh->budget.finish_restore(history, state.decisions, state.high_bucket);
  for (const UnitIndex unit : released) report.released_units.push_back(fresh->units[unit].name);
  fresh->reruns.restore(state.reruns_ago, fresh->rules.selector == Selector::trial ? state.doubt : Doubt{});
  fresh->planner.restore(plan, options.lag, released);
  fresh->drop_limits_of_others();
  fresh->last_step = state.last_step;
  fresh->mode = impl_->mode;
  fresh->units.swap(impl_->units);  // views of them stay valid
  impl_ = std::move(fresh);
  return report;
}

}  // namespace gnmr
