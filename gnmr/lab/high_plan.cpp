// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/high_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <unordered_map>
#include <utility>

#include "gnmr/core/budget_limits.h"
#include "gnmr/core/error.h"
#include "gnmr/core/error_levels.h"
#include "gnmr/core/message_text.h"
#include "gnmr/io/json_text.h"
#include "gnmr/io/printable.h"

namespace gnmr::lab {
namespace {

constexpr double kUnknownError = std::numeric_limits<double>::quiet_NaN();

/// The levels of a state, by unit name.
ErrorLevels levels_of(const std::vector<Unit>& units, const ControllerState& state, const Options& options) {
  ErrorLevels levels(units, state.sites, options);
  std::unordered_map<std::string_view, std::size_t> saved;
  for (std::size_t index = 0; index < state.units.size(); ++index) saved.emplace(state.units[index].name, index);
  for (UnitIndex unit = 0; unit < units.size(); ++unit) {
    const auto found = saved.find(units[unit].name);
    if (found == saved.end()) continue;
    levels.restore_unit(unit, state.decisions,
                        std::span(state.levels).subspan(found->second * state.sites, state.sites));
  }
  return levels;
}

void measure_units(const ErrorLevels& levels, std::uint32_t sites, HighPlan& plan) {
  for (std::uint32_t site = 0; site < sites; ++site) plan.medians.push_back(levels.median(site));
  for (UnitIndex index = 0; index < plan.units.size(); ++index) {
    PlannedUnit& unit = plan.units[index];
    for (std::uint32_t site = 0; site < sites; ++site) {
      unit.errors.push_back(levels.usual_error(index, site, plan.decisions));
      unit.measured = unit.measured || !std::isnan(unit.errors.back());
      const double above = unit.errors.back() / plan.medians[site];
      if (above > unit.above) unit.above = above;
    }
    if (!unit.measured && !unit.forced) ++plan.unmeasured;
  }
}

/// Takes coarse units within the budget, the highest key first, and then what fills it.
void choose_units(const std::vector<Unit>& units, const Options& options, std::span<const UnitIndex> order,
                  HighPlan& plan) {
  BudgetLimits limits(units, options);
  plan.max_units = std::min(limits.max_units(), limits.candidates());
  const auto all = static_cast<double>(std::max<std::int64_t>(limits.total_cost(), 1));
  for (UnitIndex unit = 0; unit < units.size(); ++unit) {
    plan.units[unit].cost_share = static_cast<double>(units[unit].cost) / all;
  }
  for (const UnitIndex unit : order) {
    if (units[unit].forced) continue;
    ++(plan.units[unit].is_coarse() ? plan.coarse : plan.fills);
    if (!limits.fits(unit)) continue;
    limits.take(unit);
    plan.units[unit].chosen = true;
  }
  plan.chosen = limits.count();
  plan.cost_share = static_cast<double>(limits.cost()) / all;
}

std::string error_text(double error) { return std::isnan(error) ? "-" : fmt::format("{:.3f}", error); }

/// Those that matter first: chosen, coarse, then by how far above the median they are.
std::vector<const PlannedUnit*> by_importance(const HighPlan& plan) {
  std::vector<const PlannedUnit*> units;
  for (const PlannedUnit& unit : plan.units) units.push_back(&unit);
  std::stable_sort(units.begin(), units.end(), [](const PlannedUnit* a, const PlannedUnit* b) {
    if (a->chosen != b->chosen) return a->chosen;
    if (a->is_coarse() != b->is_coarse()) return a->is_coarse();
    if (a->claim.key != b->claim.key) return a->claim.key > b->claim.key;
    return a->above > b->above;
  });
  return units;
}

std::string status_of(const PlannedUnit& unit) {
  if (unit.chosen) return unit.fills() ? "high (fills)" : "high";
  if (unit.forced) return "set by you";
  if (!unit.measured) return "unmeasured";
  return unit.claim.kind != RiskKind::none ? "no room" : "";
}

}  // namespace

double HighPlan::unit_share() const {
  return units.empty() ? 0 : static_cast<double>(chosen) / static_cast<double>(units.size());
}

HighPlan plan_high_units(const std::vector<Unit>& units, const ControllerState& state, const Options& options) {
  check_state(state);
  if (state.sites == 0 || state.levels.empty()) {
    throw Error("the state has no levels of errors: let the run measure them, with a patrol and coarse_error above 0");
  }
  if (options.coarse_error == 0) throw Error("option `coarse_error`: expected a value above 0, or nothing is coarse");
  ErrorLevels levels = levels_of(units, state, options);
  HighPlan plan;
  plan.decisions = state.decisions;
  const StandingClaims claims = levels.find_claims(state.decisions, {}, {});
  for (UnitIndex unit = 0; unit < units.size(); ++unit) {
    plan.units.push_back({.name = units[unit].name, .claim = claims.of_units[unit], .forced = units[unit].forced});
  }
  measure_units(levels, state.sites, plan);
  choose_units(units, options, claims.order, plan);
  double all = 0;
  double removed = 0;
  for (UnitIndex unit = 0; unit < units.size(); ++unit) {
    const double excess = levels.excess(unit, state.decisions);
    all += excess;
    if (plan.units[unit].chosen) removed += excess;
  }
  plan.removed_share = all > 0 ? removed / all : 0;
  return plan;
}

std::string plan_table(const HighPlan& plan, const std::vector<std::string>& sites) {
  std::size_t width = 4;
  for (const PlannedUnit& unit : plan.units) width = std::max(width, io::printable(unit.name).size());
  std::string text = fmt::format("{:<{}}  {:>6}", "unit", width, "cost");
  for (const std::string& site : sites) text += fmt::format("  {:>15}", site);
  text += fmt::format("  {:>8}  plan\n", "x median");
  for (const PlannedUnit* const unit : by_importance(plan)) {
    text += fmt::format("{:<{}}  {:>5.1f}%", io::printable(unit->name), width, 100 * unit->cost_share);
    for (const double error : unit->errors) text += fmt::format("  {:>15}", error_text(error));
    text += fmt::format("  {:>8}  {}", unit->above > 0 ? fmt::format("{:.1f}", unit->above) : "-", status_of(*unit));
    while (text.back() == ' ') text.pop_back();
    text += '\n';
  }
  text += fmt::format("\n{} of {} high (the budget allows {}), {:.1f}% of the multiply-adds.\n",
                      counted(plan.chosen, "unit"), plan.units.size(), plan.max_units, 100 * plan.cost_share);
  if (plan.chosen > 0) {
    text += fmt::format("They have {:.0f}% of the squared errors that are above the median of their GEMM.\n",
                        100 * plan.removed_share);
  }
  if (plan.coarse + plan.fills > plan.chosen) {
    text += fmt::format("{} more would be high with a larger --max-o or --max-cost.\n",
                        counted(plan.coarse + plan.fills - plan.chosen, "unit"));
  }
  if (plan.coarse == 0) text += "No unit's error is far above that of the others: no fixed set of units pays.\n";
  if (plan.unmeasured > 0) {
    text += fmt::format("{} not been measured twenty times within 200 decisions: see --patrol.\n",
                        counted(plan.unmeasured, "unit") + (plan.unmeasured == 1 ? " has" : " have"));
  }
  return text;
}

std::string plan_json(const HighPlan& plan, const std::vector<std::string>& sites, std::string_view check) {
  io::JsonText out;
  const auto number = [&out](double value) {
    std::string text;
    io::append_json_number(text, value);
    out.plain(std::isnan(value) ? "null" : text);
  };
  const auto whole = [&out](std::uint64_t value) { out.plain(std::to_string(value)); };
  const auto errors = [&](const std::vector<double>& values) {
    out.object([&] {
      for (std::size_t site = 0; site < values.size(); ++site) {
        out.key(site < sites.size() ? sites[site] : std::to_string(site));
        number(values[site]);
      }
    });
  };
  out.object([&] {
    out.key("decisions");
    whole(plan.decisions);
    out.key("max_units");
    whole(plan.max_units);
    out.key("coarse");
    whole(plan.coarse);
    out.key("unmeasured");
    whole(plan.unmeasured);
    out.key("cost_share");
    number(plan.cost_share);
    out.key("removed_share");
    number(plan.removed_share);
    if (!check.empty()) out.key("check").plain(check);
    out.key("medians");
    errors(plan.medians);
    out.key("high");
    std::vector<std::string> high;
    for (const PlannedUnit& unit : plan.units) {
      if (unit.chosen) high.push_back(unit.name);
    }
    out.array(high, [&](const std::string& name) { out.text(name); });
    out.key("units");
    out.array(plan.units, [&](const PlannedUnit& unit) {
      out.object([&] {
        out.key("name").text(unit.name);
        out.key("cost_share");
        number(unit.cost_share);
        out.key("errors");
        errors(unit.errors);
        out.key("above_median");
        number(unit.above > 0 ? unit.above : kUnknownError);
        out.key("coarse").truth(unit.is_coarse());
        out.key("fills").truth(unit.fills());
        out.key("forced").truth(unit.forced);
        out.key("high").truth(unit.chosen);
      });
    });
  });
  return out.str() + "\n";
}

std::string plan_flags(const HighPlan& plan) {
  std::string flags;
  for (const PlannedUnit& unit : plan.units) {
    if (unit.chosen) flags += " " + unit.name;
  }
  return flags.empty() ? "" : "--always-high" + flags;
}

std::string plan_filter(const HighPlan& plan) {
  for (const PlannedUnit& unit : plan.units) {
    if (!unit.chosen) continue;
    for (const std::string_view part : {".forward", ".input_gradient", ".weight_gradient", ".saved"}) {
      if (!unit.name.ends_with(part)) continue;
      throw Error("unit `" + unit.name + "` is a part of a layer: a filter needs a run with --granularity layer");
    }
  }
  std::string text = "HIGH = {\n";
  for (const PlannedUnit& unit : plan.units) {
    if (!unit.chosen) continue;
    std::string name;
    io::append_json_string(name, unit.name);
    text += "    " + name + ",\n";
  }
  return text +
         "}\n\n\n"
         "def module_filter_fn(module, fqn):\n"
         "    \"\"\"For torchao's convert_to_float8_training: these layers stay in high precision.\"\"\"\n"
         "    return fqn not in HIGH\n";
}

}  // namespace gnmr::lab
