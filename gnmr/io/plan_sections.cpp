// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/plan_sections.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "gnmr/core/error.h"
#include "gnmr/io/json.h"

namespace gnmr::io {
namespace {

constexpr const char* kInFlightSection = "decisions_in_flight";
constexpr const char* kGatedSection = "gated_steps";
constexpr std::array<const char*, 3> kPassWords{"step", "replay", "trial"};
constexpr std::array<const char*, 3> kHoldWords{"never", "for_trial", "for_guard"};

template <class Wanted>
OrderedJson names_of(const std::vector<Unit>& units, Wanted wanted) {
  OrderedJson names = OrderedJson::array();
  for (UnitIndex unit = 0; unit < units.size(); ++unit) {
    if (wanted(unit)) names.push_back(units[unit].name);
  }
  return names;
}

OrderedJson names_in(std::span<const UnitIndex> set, const std::vector<Unit>& units) {
  return names_of(units, [&](UnitIndex unit) { return std::binary_search(set.begin(), set.end(), unit); });
}

std::vector<UnitIndex> units_of(const std::vector<Unit>& units, const JsonList& list) {
  std::unordered_set<std::string> names;
  for (std::size_t index = 0; index < list.size(); ++index) names.insert(list.text(index));
  std::vector<UnitIndex> set;
  for (UnitIndex unit = 0; unit < units.size(); ++unit) {
    if (names.contains(units[unit].name)) set.push_back(unit);
  }
  return set;
}

/// The place of a word in its list.
template <class Kind>
Kind kind_of(const JsonObject& object, std::string_view key, std::span<const char* const> words) {
  const auto found = std::find(words.begin(), words.end(), object.text(key));
  if (found == words.end()) object.fail(key, "unknown word");
  return static_cast<Kind>(found - words.begin());
}

// Keys are in alphabetical order, as they have been since the first version.
OrderedJson to_json(const PlannedStep& step) {
  return {{"again", step.again},
          {"batch", step.batch},
          {"begun", step.begun},
          {"failed", step.failed},
          {"hold", kHoldWords[static_cast<std::size_t>(step.hold)]},
          {"in_force", step.in_force},
          {"may_rerun", step.may_rerun},
          {"pass", kPassWords[static_cast<std::size_t>(step.pass)]},
          {"step", step.step}};
}

PlannedStep planned_step(const JsonObject& step) {
  return {.step = step.whole("step"),
          .batch = step.whole("batch"),
          .pass = kind_of<PassKind>(step, "pass", kPassWords),
          .again = step.truth("again"),
          .hold = kind_of<HoldRule>(step, "hold", kHoldWords),
          .may_rerun = step.truth("may_rerun"),
          .begun = step.truth("begun"),
          .in_force = step.truth("in_force"),
          .failed = step.truth("failed")};
}

/// One for all units.
unsigned doubt_of(const PlanState& state) {
  if (state.flags.empty()) return 1;
  return 1U << ((state.flags.front() & gate_flag::kDoubt) >> gate_flag::kDoubtShift);
}

/// The limits of a gate's errors: units with a limit that is not infinite.
OrderedJson limits_of(const PlanState& state, const std::vector<Unit>& units) {
  const std::size_t sites = units.empty() ? 0 : state.error_limits.size() / units.size();
  OrderedJson listed = OrderedJson::array();
  for (UnitIndex unit = 0; unit < units.size() && sites > 0; ++unit) {
    const std::span<const float> limits = std::span(state.error_limits).subspan(unit * sites, sites);
    if (std::none_of(limits.begin(), limits.end(), [](float limit) { return std::isfinite(limit); })) continue;
    OrderedJson numbers = OrderedJson::array();
    for (const float limit : limits) numbers.push_back(json_number(static_cast<double>(limit)));
    listed.push_back({{"limits", numbers}, {"unit", units[unit].name}});
  }
  return {{"sites", sites}, {"units", listed}};
}

/// All others are infinite; units of other names are left out.
std::vector<float> read_limits(const JsonObject& section, const std::vector<Unit>& units) {
  const std::uint64_t sites = section.count("sites");
  if (sites == 0 || sites > kMostSites) section.fail("sites", "expected 1 to 16");
  std::unordered_map<std::string_view, UnitIndex> places;
  for (UnitIndex unit = 0; unit < units.size(); ++unit) places.emplace(units[unit].name, unit);
  std::vector<float> limits(units.size() * sites, std::numeric_limits<float>::infinity());
  for (const JsonObject& listed : section.objects("units")) {
    const std::vector<double> numbers = listed.numbers("limits");
    if (numbers.size() != sites) listed.fail("limits", "expected one per site");
    const auto found = places.find(listed.text("unit"));
    for (std::size_t site = 0; site < sites; ++site) {
      const auto limit = static_cast<float>(numbers[site]);
      if (!is_error_limit(limit)) listed.fail("limits", "expected numbers that are not negative");
      if (found != places.end()) limits[found->second * sites + site] = limit;
    }
  }
  return limits;
}

OrderedJson gated_section(const PlanState& state, const std::vector<Unit>& units, const PlanNotes& notes) {
  OrderedJson waiting = OrderedJson::array();
  for (const WaitingBatch& batch : state.waiting) {
    waiting.push_back({{"batch", batch.batch}, {"pass", kPassWords[static_cast<std::size_t>(batch.pass)]}});
  }
  OrderedJson undecided = OrderedJson::array();
  for (const PlannedStep& step : state.undecided) undecided.push_back(to_json(step));
  OrderedJson whys = OrderedJson::array();
  for (const auto& [batch, why] : notes.whys) whys.push_back({batch, why});
  const auto has = [&](UnitIndex unit, std::uint8_t flag) {
    return unit < state.flags.size() && (state.flags[unit] & flag) != 0;
  };
  OrderedJson section{
      {"called", state.called},
      {"called_why", notes.called_why},
      {"disarm_step", notes.disarm_step},
      {"disarm_why", notes.disarm_why},
      {"next_batch", state.next_batch},
      {"not_free", names_of(units, [&](UnitIndex unit) { return !has(unit, gate_flag::kFree); })},
      {"undecided", undecided},
      {"waiting", waiting},
      {"whys", whys},
      {"zero_muted", names_of(units, [&](UnitIndex unit) { return has(unit, gate_flag::kZeroMuted); })}};
  if (const unsigned doubt = doubt_of(state); doubt > 1) section["doubt"] = doubt;     // none in earlier files
  if (!state.error_limits.empty()) section["error_limits"] = limits_of(state, units);  // likewise
  return section;
}

void read_gated(const JsonObject& section, const std::vector<Unit>& units, LoadedPlan& loaded) {
  PlanState& plan = loaded.plan;
  plan.next_batch = section.whole("next_batch");
  plan.called = section.truth("called");
  for (const JsonObject& batch : section.objects("waiting")) {
    plan.waiting.push_back({batch.whole("batch"), kind_of<PassKind>(batch, "pass", kPassWords)});
  }
  for (const JsonObject& step : section.objects("undecided")) plan.undecided.push_back(planned_step(step));
  plan.flags.assign(units.size(), gate_flag::kFree);
  for (const UnitIndex unit : units_of(units, section.list("not_free"))) plan.flags[unit] = 0;
  for (const UnitIndex unit : units_of(units, section.list("zero_muted"))) plan.flags[unit] |= gate_flag::kZeroMuted;
  const std::uint64_t doubt = section.count_if("doubt").value_or(1);
  if (doubt > kMostDoubt || !std::has_single_bit(doubt)) section.fail("doubt", "expected 1, 2, 4 or 8");
  const int doubt_flag = std::countr_zero(doubt) << gate_flag::kDoubtShift;
  for (std::uint8_t& flags : plan.flags) flags |= static_cast<std::uint8_t>(doubt_flag);
  if (const auto limits = section.object_if("error_limits")) plan.error_limits = read_limits(*limits, units);
  PlanNotes notes{.called_why = section.text("called_why"),
                  .disarm_step = section.whole("disarm_step"),
                  .disarm_why = section.text("disarm_why")};
  const JsonList whys = section.list("whys");
  for (std::size_t index = 0; index < whys.size(); ++index) {
    const JsonList why = whys.list(index);
    notes.whys[why.whole(0)] = why.text(1);
  }
  loaded.notes = std::move(notes);
}

}  // namespace

void add_plan(const Controller& controller, bool with_batches, const PlanNotes& notes, ExtraSections& sections) {
  const std::vector<Unit>& units = controller.units();
  const PlanState& plan = controller.plan_state();
  OrderedJson sets = OrderedJson::array();
  if (!plan.undecided.empty()) sets.push_back(names_in(plan.recovered, units));
  if (controller.decisions() > 0) sets.push_back(names_in(controller.recovered(), units));
  sections.emplace(kInFlightSection, json_line(sets));
  if (!with_batches && controller.options().lag == 0 && plan.waiting.empty()) return;
  sections.emplace(kGatedSection, json_line(gated_section(plan, units, notes)));
}

std::string damaged_section(std::string_view section) {
  return "controller state: the section " + std::string(section) + " is damaged";
}

LoadedPlan read_plan(const ExtraSections& sections, const std::vector<Unit>& units) {
  LoadedPlan loaded;
  if (const auto gated = sections.find(kGatedSection); gated != sections.end()) {
    read_json_object(gated->second, damaged_section(kGatedSection),
                     [&](const JsonObject& section) { read_gated(section, units, loaded); });
  }
  std::vector<std::vector<UnitIndex>> sets;
  if (const auto in_flight = sections.find(kInFlightSection); in_flight != sections.end()) {
    read_json_list(in_flight->second, damaged_section(kInFlightSection), [&](const JsonList& given) {
      for (std::size_t index = 0; index < given.size(); ++index) sets.push_back(units_of(units, given.list(index)));
    });
  }
  PlanState& plan = loaded.plan;
  if (plan.undecided.empty() && sets.size() < 2) return loaded;
  if (!sets.empty()) plan.recovered = sets.front();
  plan.recovered_is_next = plan.undecided.empty();
  return loaded;
}

}  // namespace gnmr::io
