// SPDX-License-Identifier: Apache-2.0
// What a supervisor keeps in a checkpoint beside the judge's state: sections of the same file.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "gnmr/core/error.h"
#include "gnmr/run/supervisor.h"

namespace gnmr::run {
namespace {

using nlohmann::json;

constexpr const char* kInFlightSection = "decisions_in_flight";
constexpr const char* kAuditSection = "audit";
constexpr const char* kGatedSection = "gated_steps";
constexpr std::array<const char*, 3> kPassWords{"step", "replay", "trial"};
constexpr std::array<const char*, 3> kHoldWords{"never", "for_trial", "for_guard"};

std::vector<UnitIndex> in_recovery(const Controller& controller) {
  std::vector<UnitIndex> units;
  for (UnitIndex unit = 0; unit < controller.units().size(); ++unit) {
    if (controller.steps_left(unit) > 0) units.push_back(unit);
  }
  return units;
}

template <class Wanted>
json names_of(const std::vector<Unit>& units, Wanted wanted) {
  json names = json::array();
  for (UnitIndex unit = 0; unit < units.size(); ++unit) {
    if (wanted(unit)) names.push_back(units[unit].name);
  }
  return names;
}

json names_in(const std::vector<UnitIndex>& set, const std::vector<Unit>& units) {
  return names_of(units, [&](UnitIndex unit) { return std::binary_search(set.begin(), set.end(), unit); });
}

std::vector<UnitIndex> units_of(const std::vector<Unit>& units, const json& names) {
  std::vector<UnitIndex> set;
  for (UnitIndex unit = 0; unit < units.size(); ++unit) {
    if (std::find(names.begin(), names.end(), units[unit].name) != names.end()) set.push_back(unit);
  }
  return set;
}

[[noreturn]] void refuse(const char* section) {
  throw Error("controller state: the section " + std::string(section) + " is damaged");
}

/// The place of a word in its list.
template <class Kind>
Kind kind_of(const json& word, std::span<const char* const> words) {
  const auto found = std::find(words.begin(), words.end(), word.get<std::string>());
  if (found == words.end()) refuse(kGatedSection);
  return static_cast<Kind>(found - words.begin());
}

json to_json(const UndecidedStep& step) {
  return {{"step", step.plan.step},
          {"batch", step.plan.batch},
          {"pass", kPassWords[static_cast<std::size_t>(step.plan.pass)]},
          {"again", step.plan.again},
          {"hold", kHoldWords[static_cast<std::size_t>(step.plan.hold)]},
          {"may_rerun", step.may_rerun},
          {"begun", step.begun},
          {"in_force", step.in_force},
          {"failed", step.failed}};
}

UndecidedStep undecided_step(const json& step) {
  return {.plan = {.step = step.at("step").get<std::int64_t>(),
                   .batch = step.at("batch").get<std::int64_t>(),
                   .pass = kind_of<PassKind>(step.at("pass"), kPassWords),
                   .again = step.at("again").get<bool>(),
                   .hold = kind_of<HoldRule>(step.at("hold"), kHoldWords)},
          .may_rerun = step.at("may_rerun").get<bool>(),
          .begun = step.at("begun").get<bool>(),
          .in_force = step.at("in_force").get<bool>(),
          .failed = step.at("failed").get<bool>()};
}

std::deque<std::pair<std::int64_t, bool>> audited_steps(const std::string& text) {
  const auto entries = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!entries.is_array()) refuse(kAuditSection);
  std::deque<std::pair<std::int64_t, bool>> audited;
  for (const auto& entry : entries) {
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_number_integer() || !entry[1].is_boolean()) {
      refuse(kAuditSection);
    }
    audited.emplace_back(entry[0].get<std::int64_t>(), entry[1].get<bool>());
  }
  return audited;
}

}  // namespace

/// Which batches wait, what the next step is, and what it knows of the units.
std::string Supervisor::gated_section() const {
  const GatedState& state = steps_.state();
  const std::vector<Unit>& units = controller().units();
  json waiting = json::array();
  for (const WaitingBatch& batch : state.waiting) {
    waiting.push_back({{"batch", batch.batch}, {"pass", kPassWords[static_cast<std::size_t>(batch.pass)]}});
  }
  json undecided = json::array();
  for (const UndecidedStep& step : state.undecided) undecided.push_back(to_json(step));
  json whys = json::array();
  for (const auto& [batch, why] : whys_) whys.push_back({batch, why});
  const auto has = [&](UnitIndex unit, unsigned flag) {
    return unit < planned_flags_.size() && (planned_flags_[unit] & flag) != 0;
  };
  return json{{"next_batch", state.next_batch},
              {"waiting", waiting},
              {"called", state.called},
              {"undecided", undecided},
              {"not_free", names_of(units, [&](UnitIndex unit) { return !has(unit, 1); })},
              {"zero_muted", names_of(units, [&](UnitIndex unit) { return has(unit, 2); })},
              {"whys", whys},
              {"called_why", called_why_},
              {"disarm_step", disarm_step_},
              {"disarm_why", disarm_why_}}
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

void Supervisor::restore_gated(const std::string& text) {
  try {
    const json section = json::parse(text);
    GatedState state{.next_batch = section.at("next_batch").get<std::int64_t>(),
                     .called = section.at("called").get<bool>()};
    for (const json& batch : section.at("waiting")) {
      state.waiting.push_back({batch.at("batch").get<std::int64_t>(), kind_of<PassKind>(batch.at("pass"), kPassWords)});
    }
    for (const json& step : section.at("undecided")) state.undecided.push_back(undecided_step(step));
    std::vector<std::uint8_t> flags(controller().units().size(), 1);
    for (const UnitIndex unit : units_of(controller().units(), section.at("not_free"))) flags[unit] = 0;
    for (const UnitIndex unit : units_of(controller().units(), section.at("zero_muted"))) flags[unit] |= 2U;
    std::map<std::int64_t, std::string> whys;
    for (const json& why : section.at("whys")) whys[why.at(0).get<std::int64_t>()] = why.at(1).get<std::string>();
    disarm_step_ = section.at("disarm_step").get<std::int64_t>();
    disarm_why_ = section.at("disarm_why").get<std::string>();
    called_why_ = section.at("called_why").get<std::string>();
    whys_ = std::move(whys);
    planned_flags_ = std::move(flags);
    steps_.restore(state, has_gate());
  } catch (const json::exception&) {
    refuse(kGatedSection);
  }
}

std::string Supervisor::save() const {
  json sets = json::array();
  if (has_gate()) {
    if (steps_.next_to_hear() != nullptr) sets.push_back(names_in(planned_recovered_, controller().units()));
    if (controller().decisions() > 0) sets.push_back(names_in(in_recovery(controller()), controller().units()));
  } else {
    for (const std::vector<UnitIndex>& set : in_flight_) sets.push_back(names_in(set, controller().units()));
  }
  io::ExtraSections sections{{kInFlightSection, sets.dump()}};
  if (!audited_.empty()) sections.emplace(kAuditSection, json(audited_).dump());
  // Without a gate batches have the numbers of their steps, unless an earlier run with one has left some waiting.
  const std::int64_t next_batch = steps_.state().next_batch;
  const bool ran_with_gate = next_batch != 0 && next_batch != plan_.step + 1;
  if (has_gate() || ran_with_gate || !steps_.state().waiting.empty()) {
    sections.emplace(kGatedSection, gated_section());
  }
  return io::encode_state(judge_.save(), sections);
}

RestoreReport Supervisor::restore(const std::string& state_bytes) {
  const io::LoadedState loaded = io::decode_state(std::as_bytes(std::span(state_bytes)));
  const auto find = [&](const char* name) {
    const auto section = loaded.extra_sections.find(name);
    return section != loaded.extra_sections.end() ? std::optional(section->second) : std::nullopt;
  };
  std::vector<std::vector<UnitIndex>> sets;
  if (const auto text = find(kInFlightSection)) {
    const auto given = json::parse(*text, nullptr, /*allow_exceptions=*/false);
    if (!given.is_array()) refuse(kInFlightSection);
    for (const json& names : given) sets.push_back(units_of(controller().units(), names));
  }
  std::deque<std::pair<std::int64_t, bool>> audited;
  if (const auto text = find(kAuditSection)) audited = audited_steps(*text);
  const auto gated = find(kGatedSection);
  if (gated) {
    restore_gated(*gated);
  } else {
    steps_.restore({}, has_gate());  // plans of before the restore are none of this state
  }
  const RestoreReport report = judge_.restore(loaded.state);
  decision_checksum_ = 0;
  audited_ = std::move(audited);
  in_flight_.clear();
  // What the restored controller holds in recovery is what its last decision says, options that changed included.
  if (!sets.empty()) in_flight_.push_back(in_recovery(controller()));
  if (!has_gate()) return report;
  if (steps_.next_to_hear() != nullptr) {
    planned_recovered_ = sets.empty() ? std::vector<UnitIndex>() : sets.front();
    std::erase_if(planned_recovered_, [&](UnitIndex unit) {
      const std::string& name = controller().units()[unit].name;
      return std::find(report.released_units.begin(), report.released_units.end(), name) != report.released_units.end();
    });
  } else if (sets.size() > 1) {
    restored_recovered_ = sets.front();
  }
  return report;
}

}  // namespace gnmr::run
