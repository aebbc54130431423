// SPDX-License-Identifier: Apache-2.0
#include "gnmr/core/controller.h"

#include <algorithm>
#include <charconv>
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
      candidates.push_back({findings.records[i].severity, unit});
      asking.push_back(unit);
    }
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
  const std::size_t count = impl_->units.size();
  const auto number = [](auto value) { return std::to_string(value); };
  if (impl_->pending != nullptr) {
    reject(observation.step, "decide() or withdraw() after the observation of step " + number(impl_->alarm.step) +
                                 ", got another observation");
  }
  if (observation.norms.size() != count) {
    reject(observation.step, number(count) + " norms, got " + number(observation.norms.size()));
  }
  if (!observation.sampled.empty() && observation.sampled.size() != count) {
    reject(observation.step,
           "a mask of " + number(count) + " units or none, got " + number(observation.sampled.size()));
  }
  impl_->alarm = {};
  const History::Findings& findings = impl_->history.observe(observation);
  if (findings.negative_unit < count) {
    reject(observation.step, "norms that are not negative, got " + shortest(observation.norms[findings.negative_unit]) +
                                 " for unit `" + impl_->units[findings.negative_unit].name + "`");
  }
  impl_->pending = &findings;
  return impl_->raise_alarm(observation.step, findings);
}

void Controller::withdraw() {
  if (impl_->pending == nullptr) return;
  impl_->pending = nullptr;
  impl_->history.discard_observation();
}

const Decision& Controller::decide(std::span<const double> evidence) {
  Impl& self = *impl_;
  if (self.pending == nullptr) throw Error("expected observe() before decide()");
  if (!evidence.empty() && evidence.size() != self.units.size()) {
    reject(self.alarm.step, "evidence for " + std::to_string(self.units.size()) + " units or none, got " +
                                std::to_string(evidence.size()));
  }
  self.history.commit();
  self.budget.release(self.history, self.alarm.common);
  self.select(*self.pending);
  self.budget.admit(self.candidates, self.asking, self.history);
  self.pending = nullptr;
  self.last_step = self.alarm.step;
  self.decision = {.step = self.alarm.step,
                   .common = self.alarm.common,
                   .recovered = self.budget.recovered(),
                   .admitted = self.budget.admitted(),
                   .denied = self.budget.denied(),
                   .futile = self.budget.futile(),
                   .released = self.budget.released(),
                   .recovered_cost = self.budget.cost()};
  return self.decision;
}

const Decision& Controller::step(const Observation& observation) {
  observe(observation);
  return decide();
}

Signals Controller::signals(UnitIndex unit) const { return impl_->history.signals(unit); }
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
