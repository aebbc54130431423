// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/fault_cells.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <tuple>

#include "gnmr/core/error.h"
#include "gnmr/io/json.h"
#include "gnmr/io/text_error.h"
#include "gnmr/lab/cell_json.h"
#include "gnmr/lab/experiment/fault_kinds.h"
#include "gnmr/lab/fault_suite.h"
#include "gnmr/lab/suite.h"
#include "gnmr/lab/suite_file.h"
#include "gnmr/run/run_folder.h"

namespace gnmr::lab {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kLineVersion = 1;

// Of no consequence for a result: where and how often it was written.
constexpr std::array<std::string_view, 6> kLeftOut{
    "out", "label", "resume", "resume_step", "checkpoint_every", "keep_checkpoints"};

// What belongs to one cell, or to the machine that it was run on.
constexpr std::array<std::string_view, 6> kOfCell{"seed",        "fault_seed", "random_units",
                                                  "always_high", "set",        "threads"};

// What all arms under one fault share.
constexpr std::array<std::string_view, 24> kConditions{
    "fault_layers", "model",       "init",           "outliers",     "data",         "held_out",
    "steps",        "batch",       "sequence",       "accumulate",   "lr",           "min_lr",
    "warmup",       "beta1",       "beta2",          "weight_decay", "eval_batches", "fault_from",
    "fault_every",  "fault_steps", "fault_strength", "clip",         "granularity",  "device"};

template <class Names>
bool is_among(std::string_view name, const Names& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// The names of settings that differ, of those that `counts` takes.
template <class Counts>
std::string differences(const FaultCell& first, const FaultCell& second, const Counts& counts) {
  std::vector<std::string> names;
  for (const FaultCell* const cell : {&first, &second}) {
    for (const SettingText& text : cell->settings) {
      if (!counts(text.name) || first.setting(text.name) == second.setting(text.name)) continue;
      if (!is_among(text.name, names)) names.push_back(text.name);
    }
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

/// The settings of a cell, with what its rule added where its run is still there.
run::TrainSettings settings_in(const Suite& suite, const PlannedCell& planned) {
  run::TrainSettings settings = suite.arms()[planned.arm].settings;
  settings.seed = planned.seed;
  settings.experiment.fault_seed = planned.seed + 1;
  const run::RunFolder folder(suite.run_folder(planned));
  if (!folder.holds_run()) return settings;
  // Not all of them: a run writes down defaults that its arm leaves open.
  const run::TrainSettings used = run::load_run_info(folder).settings;
  settings.random_units = used.random_units;
  settings.always_high = used.always_high;
  settings.set = used.set;
  return settings;
}

void add_cells(const std::string& folder, std::vector<FaultCell>& cells) {
  const Suite suite = Suite::load(folder);
  if (suite.fault().empty()) throw io::error_at(folder, "it holds a suite, but none of `gnmr lab faults`");
  try {
    fault_subject(suite.fault());
  } catch (const Error& error) {
    throw io::error_at((fs::path(folder) / kSuiteFileName).string(), error.what());
  }
  for (const PlannedCell& planned : suite.cells()) {
    std::optional<CellResult> result = suite.finished(planned);
    if (!result) continue;
    FaultCell cell{.fault = suite.fault(), .result = std::move(*result)};
    for (SettingText& text : changed_settings(settings_in(suite, planned))) {
      if (!is_among(text.name, kLeftOut)) cell.settings.push_back(std::move(text));
    }
    cells.push_back(std::move(cell));
  }
}

bool holds_suite(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / kSuiteFileName, ignored);
}

/// Settings in the order in which changed_settings gives them: a file of ours is written again as it was.
std::vector<SettingText> settings_in_order(const io::JsonObject& object) {
  std::vector<SettingText> settings;
  for (const auto& [name, text] : object.json().items()) settings.push_back({name, object.text(name)});
  const auto& specs = run::setting_specs();
  const auto options = option_specs();
  const auto place = [&](const SettingText& setting) {
    const auto is_named = [&](const auto& spec) { return spec.name == setting.name; };
    return std::pair(std::find_if(specs.begin(), specs.end(), is_named) - specs.begin(),
                     std::find_if(options.begin(), options.end(), is_named) - options.begin());
  };
  std::stable_sort(settings.begin(), settings.end(),
                   [&](const SettingText& a, const SettingText& b) { return place(a) < place(b); });
  return settings;
}

FaultCell fault_cell_of(const io::JsonObject& object) {
  object.check_version(kLineVersion);
  FaultCell cell{.fault = object.text("fault"),
                 .settings = settings_in_order(object.object("settings")),
                 .result = cell_of(object.object("cell"))};
  fault_subject(cell.fault);
  return cell;
}

/// Where a fault and an arm stand in their tables; what is not there comes behind, by name.
auto order_of(const FaultCell& cell) {
  const auto kinds = fault_kinds();
  const std::string kind = cell.fault.substr(0, cell.fault.find_first_of(":,"));
  const FaultSubject subject = fault_subject(cell.fault);
  const auto fault = std::find_if(kinds.begin(), kinds.end(), [&](const auto& spec) { return spec.name == kind; });
  const std::vector<Arm>& arms = fault_arms();
  const std::string plain = cell.result.arm.substr(0, cell.result.arm.find(':'));
  const auto arm = std::find_if(arms.begin(), arms.end(), [&](const Arm& one) { return one.name == plain; });
  return std::tuple(fault - kinds.begin(), subject.layers, subject.strength, cell.fault, arm - arms.begin(),
                    cell.result.arm, cell.result.seed);
}

/// Cells of one arm differ in what belongs to a cell, those of other arms in more, but not in the conditions.
void check_together(const FaultCell& first, const FaultCell& second) {
  const bool same_arm = first.result.arm == second.result.arm;
  const std::string names = same_arm
                                ? differences(first, second, [](auto name) { return !is_among(name, kOfCell); })
                                : differences(first, second, [](auto name) { return is_among(name, kConditions); });
  const bool other_text = !first.result.origin.data.empty() && !second.result.origin.data.empty() &&
                          first.result.origin.data != second.result.origin.data;
  if (names.empty() && !other_text) return;
  throw Error(fmt::format("{}: {} with seed {} and {} with seed {} were trained under different conditions ({})",
                          first.fault, first.result.arm, first.result.seed, second.result.arm, second.result.seed,
                          names.empty() ? "the text itself; --train data=FILE makes it the same everywhere" : names));
}

}  // namespace

std::string FaultCell::setting(std::string_view name) const {
  for (const SettingText& text : settings) {
    if (text.name == name) return text.value;
  }
  return {};
}

std::vector<FaultCell> cells_in_folder(const std::string& folder) {
  std::vector<FaultCell> cells;
  if (holds_suite(folder)) {
    add_cells(folder, cells);
    return cells;
  }
  std::vector<std::string> suites;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    if (holds_suite(entry.path())) suites.push_back(entry.path().string());
  }
  if (suites.empty()) throw io::error_at(folder, "there is no suite of `gnmr lab faults` in it");
  std::sort(suites.begin(), suites.end());
  for (const std::string& suite : suites) add_cells(suite, cells);
  return cells;
}

std::vector<FaultCell> cells_in_file(const std::string& path) {
  std::vector<FaultCell> cells;
  io::read_json_lines(path, io::OpenEnd::whole, [&](const io::JsonObject& line) {
    if (line.text("kind") == "cell") cells.push_back(fault_cell_of(line));
  });
  return cells;
}

std::string cell_lines(const std::vector<FaultCell>& cells) {
  std::string lines;
  for (const FaultCell& cell : cells) {
    io::OrderedJson settings = io::OrderedJson::object();
    for (const SettingText& text : cell.settings) settings[text.name] = text.value;
    const io::OrderedJson object{{"kind", "cell"},
                                 {"version", kLineVersion},
                                 {"fault", cell.fault},
                                 {"site", fault_subject(cell.fault).site},
                                 {"settings", std::move(settings)},
                                 {"cell", cell_json(cell.result)}};
    lines += object.dump() + "\n";
  }
  return lines;
}

std::vector<FaultCell> merge_cells(std::vector<FaultCell> cells) {
  std::stable_sort(cells.begin(), cells.end(),
                   [](const FaultCell& a, const FaultCell& b) { return order_of(a) < order_of(b); });
  std::vector<FaultCell> merged;
  for (FaultCell& cell : cells) {
    if (!merged.empty() && order_of(merged.back()) == order_of(cell)) {
      merged.back() = std::move(cell);
    } else {
      merged.push_back(std::move(cell));
    }
  }
  for (std::size_t cell = 1; cell < merged.size(); ++cell) {
    if (merged[cell].fault == merged[cell - 1].fault) check_together(merged[cell - 1], merged[cell]);
  }
  return merged;
}

}  // namespace gnmr::lab
