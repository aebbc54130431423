// SPDX-License-Identifier: Apache-2.0
#include "gnmr/core/controller.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "gnmr/core/budget.h"
#include "gnmr/core/error.h"
#include "gnmr/core/history.h"

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

std::string shortest(double value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

[[noreturn]] void reject(std::int64_t step, const std::string& what) {
  throw Error("[step " + std::to_string(step) + "] expected " + what);
}

/// Whether the cause of the risks is common to the units.
bool is_common(const Options& options, const History::Findings& findings) {
  constexpr std::uint32_t kFewest = 10;
  if (options.common_share >= 1) return false;
  if (findings.finite >= kFewest) {
    return static_cast<double>(findings.finite_risks) > options.common_share * static_cast<double>(findings.finite);
  }
  return findings.sampled >= kFewest && findings.finite == 0;
}

}  // namespace

struct Controller::Impl {
  Impl(std::vector<Unit> given, const Options& given_options)
      : units(checked(std::move(given))),
        options(checked(given_options)),
        history(units.size(), options),
        budget(units, options) {
    candidates.reserve(units.size());
    asking.reserve(units.size());
  }

  void check_sizes(const Observation& observation) const {
    const auto number = [](auto value) { return std::to_string(value); };
    const std::size_t count = units.size();
    if (observation.norms.size() != count) {
      reject(observation.step, number(count) + " norms, got " + number(observation.norms.size()));
    }
    if (!observation.sampled.empty() && observation.sampled.size() != count) {
      reject(observation.step,
             "a mask of " + number(count) + " units or none, got " + number(observation.sampled.size()));
    }
  }

  [[noreturn]] void reject_norm(const Observation& observation, std::size_t unit) const {
    reject(observation.step, "norms that are not negative, got " + shortest(observation.norms[unit]) + " for unit `" +
                                 units[unit].name + "`");
  }

  const Alarm& raise_alarm(std::int64_t step, const History::Findings& findings) {
    alarm = {.step = step,
             .sampled = findings.sampled,
             .finite = findings.finite,
             .centre = findings.centre,
             .common = is_common(options, findings),
             .risks = findings.risks};
    return alarm;
  }

  // The selector `norms`: every unit at risk asks, by the severity of its signals.
  void select(const History::Findings& findings) {
    candidates.clear();
    asking.clear();
    if (alarm.common) return;
    for (std::size_t i = 0; i < findings.risks.size(); ++i) {
      const UnitIndex unit = findings.risks[i];
      if (!budget.is_candidate(unit)) continue;
      candidates.push_back({.severity = findings.records[i].severity, .unit = unit, .kind = history.risk(unit)});
      asking.push_back(unit);
    }
  }

  // Another selector: whoever it names asks.
  void select(std::span<const Candidate> given) {
    candidates.clear();
    asking.clear();
    for (const Candidate& candidate : given) {
      if (!budget.is_candidate(candidate.unit)) continue;
      candidates.push_back(candidate);
      asking.push_back(candidate.unit);
    }
  }

  void check(std::span<const Candidate> given) const {
    const Candidate* last = nullptr;
    for (const Candidate& candidate : given) {
      if (candidate.unit >= units.size() || (last != nullptr && candidate.unit <= last->unit)) {
        reject(alarm.step, "candidates that ascend and are below " + std::to_string(units.size()) + ", got unit " +
                               std::to_string(candidate.unit));
      }
      if (std::isnan(candidate.severity)) {
        reject(alarm.step, "severities that are numbers, got NaN for unit `" + units[candidate.unit].name + "`");
      }
      last = &candidate;
    }
  }

  // `choose` makes the candidates, after releases; everything else of a decision is the same for all selectors.
  template <class Choose>
  const Decision& decide(bool common, Choose choose) {
    history.commit();
    budget.release(history, common);
    choose();
    budget.admit(candidates, asking, history);
    pending = nullptr;
    last_step = alarm.step;
    decision = {.step = alarm.step,
                .common = common,
                .recovered = budget.recovered(),
                .admitted = budget.admitted(),
                .denied = budget.denied(),
                .futile = budget.futile(),
                .released = budget.released(),
                .recovered_cost = budget.cost()};
    return decision;
  }

  std::vector<Unit> units;
  Options options;
  History history;
  Budget budget;
  const History::Findings* pending = nullptr;  // of the pending observation
  std::vector<Candidate> candidates;
  std::vector<UnitIndex> asking;
  Alarm alarm;
  Decision decision;
  std::int64_t last_step = 0;
};

Controller::Controller(std::vector<Unit> units, const Options& options)
    : impl_(std::make_unique<Impl>(std::move(units), options)) {}
Controller::Controller(Controller&&) noexcept = default;
Controller& Controller::operator=(Controller&&) noexcept = default;
Controller::~Controller() = default;

const Alarm& Controller::observe(const Observation& observation) {
  Impl& self = *impl_;
  if (self.pending != nullptr) {
    reject(observation.step, "decide() or withdraw() after the observation of step " + std::to_string(self.alarm.step) +
                                 ", got another observation");
  }
  self.check_sizes(observation);
  self.alarm = {};
  const History::Findings& findings = self.history.observe(observation);
  if (findings.negative_unit < self.units.size()) self.reject_norm(observation, findings.negative_unit);
  self.pending = &findings;
  return self.raise_alarm(observation.step, findings);
}

void Controller::check(const Observation& observation) const {
  impl_->check_sizes(observation);
  for (std::size_t unit = 0; unit < observation.norms.size(); ++unit) {
    const bool sampled = observation.sampled.empty() || observation.sampled[unit] != 0;
    if (sampled && observation.norms[unit] < 0) impl_->reject_norm(observation, unit);
  }
}

void Controller::withdraw() {
  if (impl_->pending == nullptr) return;
  impl_->pending = nullptr;
  impl_->history.discard_observation();
}

const Decision& Controller::decide() {
  Impl& self = *impl_;
  if (self.pending == nullptr) throw Error("expected observe() before decide()");
  return self.decide(self.alarm.common, [&self] { self.select(*self.pending); });
}

const Decision& Controller::decide_among(std::span<const Candidate> candidates, bool common) {
  Impl& self = *impl_;
  if (self.pending == nullptr) throw Error("expected observe() before decide_among()");
  self.check(candidates);
  return self.decide(common, [&self, candidates] { self.select(candidates); });
}

const Decision& Controller::step(const Observation& observation) {
  observe(observation);
  return decide();
}

Signals Controller::signals(UnitIndex unit) const { return impl_->history.signals(unit); }
bool Controller::was_sampled(UnitIndex unit) const { return impl_->history.saw_sample(unit); }
double Controller::mean_norm(UnitIndex unit) const { return impl_->history.mean(unit); }
bool Controller::is_free(UnitIndex unit) const { return impl_->budget.is_candidate(unit); }
bool Controller::is_zero_muted(UnitIndex unit) const { return impl_->history.is_zero_muted(unit); }
std::uint32_t Controller::steps_left(UnitIndex unit) const { return impl_->budget.steps_left(unit); }
const std::vector<Unit>& Controller::units() const { return impl_->units; }
const Options& Controller::options() const { return impl_->options; }
std::uint32_t Controller::max_recovered() const { return impl_->budget.max_units(); }
std::int64_t Controller::max_recovered_cost() const { return impl_->budget.max_cost(); }
std::int64_t Controller::total_cost() const { return impl_->budget.total_cost(); }
std::uint64_t Controller::decisions() const { return impl_->budget.decisions(); }

ControllerState Controller::save() const {
  ControllerState state{.options = impl_->options,
                        .decisions = impl_->budget.decisions(),
                        .last_step = impl_->last_step,
                        .units = std::vector<UnitState>(impl_->units.size())};
  for (UnitIndex unit = 0; unit < impl_->units.size(); ++unit) {
    UnitState& saved = state.units[unit];
    saved.name = impl_->units[unit].name;
    impl_->history.save_unit(unit, saved);
    impl_->budget.save_unit(unit, impl_->history, saved);
  }
  return state;
}

RestoreReport Controller::restore(const ControllerState& state) {
  check_state(state);
  auto fresh = std::make_unique<Impl>(impl_->units, impl_->options);
  RestoreReport report;
  report.beta_changed = state.options.beta != impl_->options.beta;
  report.noise_beta_changed = state.options.noise_beta != impl_->options.noise_beta;
  report.window_changed = state.options.window != impl_->options.window;
  std::unordered_map<std::string_view, const UnitState*> saved;
  std::uint32_t most = 0;
  for (const UnitState& unit : state.units) {
    saved.emplace(unit.name, &unit);
    most = std::max({most, unit.samples, unit.changes});
  }
  fresh->history.start_from(most);
  WeightTable mean_weights(impl_->options.beta);
  mean_weights.extend_to(most);
  for (UnitIndex unit = 0; unit < fresh->units.size(); ++unit) {
    const auto found = saved.find(fresh->units[unit].name);
    if (found == saved.end()) {
      report.new_units.push_back(fresh->units[unit].name);
      continue;
    }
    fresh->history.restore_unit(unit, *found->second,
                                {.means = !report.beta_changed, .changes = !report.noise_beta_changed}, mean_weights);
    fresh->budget.restore_unit(unit, fresh->history, *found->second);
    saved.erase(found);
  }
  for (const UnitState& unit : state.units) {
    if (saved.contains(unit.name)) report.unknown_units.push_back(unit.name);
  }
  for (const UnitIndex unit : fresh->budget.finish_restore(fresh->history, state.decisions)) {
    report.released_units.push_back(fresh->units[unit].name);
  }
  fresh->last_step = state.last_step;
  impl_ = std::move(fresh);
  return report;
}

}  // namespace gnmr
