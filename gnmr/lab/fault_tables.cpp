// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/fault_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

namespace gnmr::lab {
namespace {

constexpr const char* kNothing = "-";
constexpr std::array<std::string_view, 6> kShownConditions{"model",       "steps",       "recipe",
                                                           "fault_every", "fault_steps", "max_o"};

/// The arm as its table has it; of one that has gone, its name.
Arm arm_named(const std::string& name) {
  const std::vector<Arm>& all = fault_arms();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Arm& arm) { return arm.name == name; });
  return found != all.end() ? *found : Arm{.name = name, .label = name, .about = {}};
}

/// Settings that every arm but the references has, for people.
std::vector<std::string> conditions_of(const std::vector<FaultCell>& cells) {
  const auto of_recipe = [](const FaultCell& cell) { return cell.setting("recipe") != "none"; };
  const auto found = std::find_if(cells.begin(), cells.end(), of_recipe);
  if (found == cells.end()) return {};
  std::vector<std::string> conditions;
  for (const std::string_view name : kShownConditions) {
    const std::string text = found->setting(name);
    if (!text.empty()) conditions.push_back(fmt::format("{}={}", name, text));
  }
  return conditions;
}

FaultTable table_of(const std::vector<FaultCell>& cells) {
  const std::string& fault = cells.front().fault;
  Comparison comparison{.kind = fault == kNoFault ? SummaryKind::healthy : SummaryKind::faults};
  std::set<std::int64_t> seeds;
  for (const FaultCell& cell : cells) {
    const CellResult& result = cell.result;
    seeds.insert(result.seed);
    if (comparison.arms.empty() || comparison.arms.back().name != result.arm) {
      comparison.arms.push_back(arm_named(result.arm));
      comparison.cells.emplace_back();
    }
    comparison.cells.back().push_back(result);
    if (!result.note.empty()) {
      comparison.notes.push_back(fmt::format("{}-seed{}: {}", result.arm, result.seed, result.note));
    }
  }
  comparison.seeds = seeds.size();
  FaultTable table{.subject = fault_subject(fault), .conditions = conditions_of(cells)};
  table.conditions.push_back(fmt::format("seeds {}", fmt::join(seeds, " ")));
  table.summary = summarise(comparison);
  return table;
}

std::string escaped(std::string text) {
  for (std::size_t at = text.find('|'); at != std::string::npos; at = text.find('|', at + 2)) text.insert(at, "\\");
  return text;
}

std::string table_markdown(const Summary& summary) {
  std::string text = "| |";
  std::string line = "|---|";
  for (const SummaryColumn& column : summary.columns) {
    text += " " + escaped(column.title) + " |";
    line += "---:|";
  }
  text += "\n" + line + "\n";
  for (const SummaryRow& row : summary.rows) {
    text += "| " + escaped(row.label) + " |";
    for (const SummaryColumn& column : summary.columns) {
      const auto found = row.cells.find(column.key);
      text += " " + (found == row.cells.end() ? kNothing : escaped(found->second.text)) + " |";
    }
    text += "\n";
  }
  return text;
}

}  // namespace

std::vector<FaultTable> fault_tables(const std::vector<FaultCell>& cells) {
  std::vector<FaultTable> tables;
  for (auto first = cells.begin(); first != cells.end();) {
    const auto last =
        std::find_if(first, cells.end(), [&](const FaultCell& cell) { return cell.fault != first->fault; });
    tables.push_back(table_of({first, last}));
    first = last;
  }
  return tables;
}

Summary overview(const std::vector<FaultTable>& tables) {
  Summary summary;
  for (const Arm& arm : fault_arms()) summary.rows.push_back({.arm = arm.name, .label = arm.label});
  for (const FaultTable& table : tables) {
    const bool healthy = table.subject.name == kNoFault;
    const std::string what = healthy ? "loss - none" : subject_title(table.subject);
    summary.columns.push_back({table.subject.name, what, healthy ? "Change of the loss where nothing is wrong" : ""});
    for (const SummaryRow& row : table.summary.rows) {
      const auto found = row.cells.find(healthy ? "loss_change" : "gap_closed");
      if (found == row.cells.end()) continue;
      const auto same = [&](const SummaryRow& other) { return other.arm == row.arm; };
      auto place = std::find_if(summary.rows.begin(), summary.rows.end(), same);
      if (place == summary.rows.end()) {
        place = summary.rows.insert(place, {.arm = row.arm, .label = row.label});
      }
      place->cells[table.subject.name] = found->second;
    }
  }
  std::erase_if(summary.rows, [](const SummaryRow& row) { return row.cells.empty(); });
  return summary;
}

Summary sweep(const std::vector<FaultTable>& tables, const std::string& key) {
  Summary summary;
  for (const FaultTable& table : tables) {
    if (!table.subject.is_of_sweep()) continue;
    SummaryRow& row =
        summary.rows.emplace_back(SummaryRow{.arm = table.subject.name, .label = subject_title(table.subject)});
    for (const SummaryRow& arm : table.summary.rows) {
      const auto found = arm.cells.find(key);
      if (found == arm.cells.end()) continue;
      row.cells[arm.arm] = found->second;
      const auto same = [&](const SummaryColumn& column) { return column.key == arm.arm; };
      if (std::none_of(summary.columns.begin(), summary.columns.end(), same)) {
        summary.columns.push_back({arm.arm, arm.label, ""});
      }
    }
  }
  return summary;
}

std::string fault_tables_markdown(const std::vector<FaultTable>& tables) {
  std::string text =
      "# Injected faults, with ground truth\n\n"
      "Written by `gnmr lab faults`. Faults are INJECTED; each is followed by its site: before, in or after the "
      "quantization of a low path, or the run.\n\n"
      "## Gap closed\n\n"
      "Mean of none - arm over mean of none - high, paired by seed, with its 95% interval (Fieller's).\n\n";
  const Summary swept = sweep(tables, "gap_closed");
  text += table_markdown(swept.rows.empty() ? overview(tables) : swept);
  if (!swept.rows.empty()) {
    text += "\n## Difference to high precision, in nats\n\n" + table_markdown(sweep(tables, "high_change"));
  }
  for (const FaultTable& table : tables) {
    text += fmt::format("\n## {}\n\n", subject_title(table.subject));
    if (!table.conditions.empty()) text += fmt::format("{}\n\n", fmt::join(table.conditions, ", "));
    text += table_markdown(table.summary);
    if (!table.summary.notes.empty()) text += "\n";
    for (const std::string& note : table.summary.notes) text += "- " + note + "\n";
  }
  std::set<std::string> explained;
  text += "\n## Columns\n\n";
  for (const FaultTable& table : tables) {
    for (const SummaryColumn& column : table.summary.columns) {
      if (explained.insert(column.key).second) text += fmt::format("- *{}*: {}\n", column.title, column.help);
    }
  }
  return text;
}

}  // namespace gnmr::lab
