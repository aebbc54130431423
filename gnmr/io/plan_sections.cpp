// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/plan_sections.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>

#include "gnmr/core/error.h"

namespace gnmr::io {
namespace {

using nlohmann::json;

constexpr const char* kInFlightSection = "decisions_in_flight";
constexpr const char* kGatedSection = "gated_steps";
constexpr std::array<const char*, 3> kPassWords{"step", "replay", "trial"};
constexpr std::array<const char*, 3> kHoldWords{"never", "for_trial", "for_guard"};

template <class Wanted>
json names_of(const std::vector<Unit>& units, Wanted wanted) {
  json names = json::array();
  for (UnitIndex unit = 0; unit < units.size(); ++unit) {
    if (wanted(unit)) names.push_back(units[unit].name);
  }
  return names;
}

json names_in(std::span<const UnitIndex> set, const std::vector<Unit>& units) {
  return names_of(units, [&](UnitIndex unit) { return std::binary_search(set.begin(), set.end(), unit); });
}

std::vector<UnitIndex> units_of(const std::vector<Unit>& units, const json& names) {
  std::vector<UnitIndex> set;
  for (UnitIndex unit = 0; unit < units.size(); ++unit) {
    if (std::find(names.begin(), names.end(), units[unit].name) != names.end()) set.push_back(unit);
  }
  return set;
}

[[noreturn]] void refuse_section(const char* section) {
  throw Error("controller state: the section " + std::string(section) + " is damaged");
}

/// The place of a word in its list.
template <class Kind>
Kind kind_of(const json& word, std::span<const char* const> words) {
  const auto found = std::find(words.begin(), words.end(), word.get<std::string>());
  if (found == words.end()) refuse_section(kGatedSection);
  return static_cast<Kind>(found - words.begin());
}

json to_json(const PlannedStep& step) {
  return {{"step", step.step},
          {"batch", step.batch},
          {"pass", kPassWords[static_cast<std::size_t>(step.pass)]},
          {"again", step.again},
          {"hold", kHoldWords[static_cast<std::size_t>(step.hold)]},
          {"may_rerun", step.may_rerun},
          {"begun", step.begun},
          {"in_force", step.in_force},
          {"failed", step.failed}};
}

PlannedStep planned_step(const json& step) {
  return {.step = step.at("step").get<std::int64_t>(),
          .batch = step.at("batch").get<std::int64_t>(),
          .pass = kind_of<PassKind>(step.at("pass"), kPassWords),
          .again = step.at("again").get<bool>(),
          .hold = kind_of<HoldRule>(step.at("hold"), kHoldWords),
          .may_rerun = step.at("may_rerun").get<bool>(),
          .begun = step.at("begun").get<bool>(),
          .in_force = step.at("in_force").get<bool>(),
          .failed = step.at("failed").get<bool>()};
}

json gated_section(const PlanState& state, const std::vector<Unit>& units, const PlanNotes& notes) {
  json waiting = json::array();
  for (const WaitingBatch& batch : state.waiting) {
    waiting.push_back({{"batch", batch.batch}, {"pass", kPassWords[static_cast<std::size_t>(batch.pass)]}});
  }
  json undecided = json::array();
  for (const PlannedStep& step : state.undecided) undecided.push_back(to_json(step));
  json whys = json::array();
  for (const auto& [batch, why] : notes.whys) whys.push_back({batch, why});
  const auto has = [&](UnitIndex unit, std::uint8_t flag) {
    return unit < state.flags.size() && (state.flags[unit] & flag) != 0;
  };
  return {{"next_batch", state.next_batch},
          {"waiting", waiting},
          {"called", state.called},
          {"undecided", undecided},
          {"not_free", names_of(units, [&](UnitIndex unit) { return !has(unit, gate_flag::kFree); })},
          {"zero_muted", names_of(units, [&](UnitIndex unit) { return has(unit, gate_flag::kZeroMuted); })},
          {"whys", whys},
          {"called_why", notes.called_why},
          {"disarm_step", notes.disarm_step},
          {"disarm_why", notes.disarm_why}};
}

void read_gated(const std::string& text, const std::vector<Unit>& units, LoadedPlan& loaded) {
  try {
    const json section = json::parse(text);
    PlanState& plan = loaded.plan;
    PlanNotes notes;
    plan.next_batch = section.at("next_batch").get<std::int64_t>();
    plan.called = section.at("called").get<bool>();
    for (const json& batch : section.at("waiting")) {
      plan.waiting.push_back({batch.at("batch").get<std::int64_t>(), kind_of<PassKind>(batch.at("pass"), kPassWords)});
    }
    for (const json& step : section.at("undecided")) plan.undecided.push_back(planned_step(step));
    plan.flags.assign(units.size(), gate_flag::kFree);
    for (const UnitIndex unit : units_of(units, section.at("not_free"))) plan.flags[unit] = 0;
    for (const UnitIndex unit : units_of(units, section.at("zero_muted"))) plan.flags[unit] |= gate_flag::kZeroMuted;
    for (const json& why : section.at("whys")) notes.whys[why.at(0).get<std::int64_t>()] = why.at(1).get<std::string>();
    notes.called_why = section.at("called_why").get<std::string>();
    notes.disarm_step = section.at("disarm_step").get<std::int64_t>();
    notes.disarm_why = section.at("disarm_why").get<std::string>();
    loaded.notes = std::move(notes);
  } catch (const json::exception&) {
    refuse_section(kGatedSection);
  }
}

}  // namespace

void add_plan(const Controller& controller, bool with_batches, const PlanNotes& notes, ExtraSections& sections) {
  const std::vector<Unit>& units = controller.units();
  const PlanState& plan = controller.plan_state();
  json sets = json::array();
  if (!plan.undecided.empty()) sets.push_back(names_in(plan.recovered, units));
  if (controller.decisions() > 0) sets.push_back(names_in(controller.recovered(), units));
  sections.emplace(kInFlightSection, sets.dump());
  if (!with_batches && controller.options().lag == 0 && plan.waiting.empty()) return;
  const json section = gated_section(plan, units, notes);
  sections.emplace(kGatedSection, section.dump(-1, ' ', false, json::error_handler_t::replace));
}

LoadedPlan read_plan(const ExtraSections& sections, const std::vector<Unit>& units) {
  LoadedPlan loaded;
  if (const auto gated = sections.find(kGatedSection); gated != sections.end()) {
    read_gated(gated->second, units, loaded);
  }
  std::vector<std::vector<UnitIndex>> sets;
  if (const auto in_flight = sections.find(kInFlightSection); in_flight != sections.end()) {
    const auto given = json::parse(in_flight->second, nullptr, /*allow_exceptions=*/false);
    if (!given.is_array()) refuse_section(kInFlightSection);
    for (const json& names : given) sets.push_back(units_of(units, names));
  }
  PlanState& plan = loaded.plan;
  if (plan.undecided.empty() && sets.size() < 2) return loaded;
  if (!sets.empty()) plan.recovered = sets.front();
  plan.recovered_is_next = plan.undecided.empty();
  return loaded;
}

}  // namespace gnmr::io
