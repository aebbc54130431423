// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/suite.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>

#include "gnmr/core/error.h"
#include "gnmr/io/journal_reader.h"
#include "gnmr/io/number_text.h"
#include "gnmr/io/text_error.h"
#include "gnmr/io/whole_file.h"
#include "gnmr/lab/setting_texts.h"
#include "gnmr/lab/suite_file.h"
#include "gnmr/run/run_folder.h"

namespace gnmr::lab {
namespace {

namespace fs = std::filesystem;

constexpr double kMostRandom = 0.99;  // of the units

void make_folder(const std::string& path) {
  std::error_code failed;
  fs::create_directories(path, failed);
  if (failed) throw io::error_at(path, "cannot make the folder: " + failed.message());
}

/// An arm that was begun keeps its settings.
void check_unchanged(const std::string& path, const SuiteArm& before, const SuiteArm& now) {
  const std::vector<std::string> changed = changed_settings(before.settings, now.settings);
  if (changed.empty()) return;
  throw io::error_at(path, fmt::format("the suite was begun with other settings ({}); go on with the same ones, or "
                                       "begin another suite with another --out",
                                       fmt::join(changed, ", ")));
}

/// The units of the first and of the last block, as globs for --always-high.
run::Texts end_globs(const std::string& journal_path) {
  const io::Journal journal = io::read_journal(journal_path);
  if (!journal.header || journal.header->units.empty()) throw io::error_at(journal_path, "it names no units");
  const std::vector<Unit>& units = journal.header->units;
  run::Texts globs;
  for (const Unit& end : {units.front(), units.back()}) {
    const auto in_block = [&](const Unit& unit) { return unit.group == end.group; };
    const auto named_alike = [&](const Unit& unit) {
      return !in_block(unit) || unit.name.starts_with(end.group + ".");
    };
    if (end.group.empty()) {
      globs.push_back(end.name);
    } else if (std::all_of(units.begin(), units.end(), named_alike)) {
      globs.push_back(end.group + ".*");
    } else {
      for (const Unit& unit : units) {
        if (in_block(unit)) globs.push_back(unit.name);
      }
    }
  }
  if (globs.front() == globs.back()) globs.resize(1);
  return globs;
}

/// The share that the detector used, in recovery or in all; where it used none, one unit's.
std::string random_share(const CellResult& detector, ArmRule rule, std::string& note) {
  double share = detector.share_mean;
  if (rule == ArmRule::random_total) {
    if (!detector.high.total) throw Error(detector.arm + ": its result does not say how often its units ran high");
    share = std::min(*detector.high.total, kMostRandom);
    if (share < *detector.high.total) note = fmt::format("{} ran more units high than there are", detector.arm);
  }
  if (!(share > 0)) {
    share = 1 / static_cast<double>(std::max<std::int64_t>(detector.units, 1));
    note = fmt::format("{} used no unit; random units have one, {:.2f}%", detector.arm, 100 * share);
  }
  std::string text;
  io::append_number(text, share);
  return text;
}

/// The first of the last steps in which everything runs high.
std::int64_t late_step(std::int64_t steps) {
  return std::min(steps, 1 + static_cast<std::int64_t>(std::llround(static_cast<double>(steps) * (1 - kLateShare))));
}

/// What an arm is trained with, later texts winning. A preset is a choice of all options: frozen ones, but for the
/// budget, would undo it.
std::vector<std::string> texts_of(const SuiteRequest& request, const std::vector<std::string>& common, const Arm& arm) {
  const auto names = [](std::string_view name) {
    return [name](const std::string& text) { return parse_setting_text(text).name == name; };
  };
  const bool has_preset = std::any_of(arm.texts.begin(), arm.texts.end(), names("preset"));
  std::vector<std::string> all;
  std::copy_if(request.option_texts.begin(), request.option_texts.end(), std::back_inserter(all),
               [&](const std::string& text) { return !has_preset || names("max_o")(text); });
  all.insert(all.end(), common.begin(), common.end());
  all.push_back("label=" + arm.label);
  all.insert(all.end(), arm.texts.begin(), arm.texts.end());
  return all;
}

}  // namespace

Suite Suite::load(const std::string& folder) {
  SuiteFile file = read_suite_file(folder + "/" + kSuiteFileName);
  Suite suite;
  suite.folder_ = folder;
  suite.title_ = std::move(file.title);
  suite.fault_ = std::move(file.fault);
  suite.notes_ = std::move(file.notes);
  suite.seeds_ = std::move(file.seeds);
  suite.arms_ = std::move(file.arms);
  suite.plan();
  return suite;
}

Suite Suite::open(const SuiteRequest& request) {
  Suite suite;
  suite.folder_ = request.folder;
  suite.title_ = request.title;
  suite.fault_ = request.fault;
  suite.notes_ = request.notes;
  suite.seeds_ = request.seeds;
  const std::string path = suite.folder_ + "/" + kSuiteFileName;
  std::error_code ignored;
  const bool there = fs::exists(path, ignored);
  if (there && !request.resume) {
    throw io::error_at(suite.folder_,
                       "it holds a suite already; --resume goes on with it, another --out begins a new one");
  }
  const SuiteFile before = there ? read_suite_file(path) : SuiteFile{};
  std::vector<std::string> texts = request.texts;
  if (!request.recipe_json.empty()) texts.push_back("recipe=" + suite.folder_ + "/recipe.json");
  const std::int64_t threads = request.threads > 0 ? request.threads : before.threads;
  texts.push_back(fmt::format("threads={}", threads > 0 ? threads : 1));
  for (const Arm& arm : request.arms) {
    suite.arms_.push_back({arm, settings_from_texts(texts_of(request, texts, arm))});
  }
  // What was begun comes first, in its order.
  std::vector<SuiteArm> merged = before.arms;
  for (SuiteArm& arm : suite.arms_) {
    const auto same =
        std::find_if(merged.begin(), merged.end(), [&](const SuiteArm& b) { return b.arm.name == arm.arm.name; });
    if (same == merged.end()) {
      merged.push_back(std::move(arm));
    } else {
      check_unchanged(path, *same, arm);
      *same = std::move(arm);
    }
  }
  suite.arms_ = std::move(merged);
  for (const std::int64_t seed : before.seeds) suite.seeds_.push_back(seed);
  std::sort(suite.seeds_.begin(), suite.seeds_.end());
  suite.seeds_.erase(std::unique(suite.seeds_.begin(), suite.seeds_.end()), suite.seeds_.end());
  make_folder(suite.folder_ + "/cells");
  make_folder(suite.folder_ + "/runs");
  if (!request.recipe_json.empty()) io::replace_file(suite.folder_ + "/recipe.json", request.recipe_json);
  suite.plan();
  suite.save();
  return suite;
}

void Suite::plan() {
  const auto cell_named = [this](const std::string& name) -> std::optional<std::size_t> {
    for (std::size_t i = 0; i < cells_.size(); ++i) {
      if (cells_[i].name == name) return i;
    }
    return std::nullopt;
  };
  for (const std::int64_t seed : seeds_) {
    for (const bool needy : {false, true}) {
      for (std::size_t arm = 0; arm < arms_.size(); ++arm) {
        const std::string& needs = arms_[arm].arm.needs;
        if (needs.empty() == needy) continue;
        PlannedCell cell{.name = fmt::format("{}-seed{}", arms_[arm].arm.name, seed), .arm = arm, .seed = seed};
        if (needy) cell.needs = cell_named(fmt::format("{}-seed{}", needs, seed));
        if (needy && !cell.needs) {
          throw Error(fmt::format("the arm {} needs the arm {} too", arms_[arm].arm.name, needs));
        }
        cells_.push_back(std::move(cell));
      }
    }
  }
}

void Suite::save() const {
  write_suite_file(folder_ + "/" + kSuiteFileName, {.title = title_,
                                                    .notes = notes_,
                                                    .seeds = seeds_,
                                                    .threads = arms_.empty() ? 1 : arms_.front().settings.threads,
                                                    .fault = fault_,
                                                    .arms = arms_});
}

run::TrainSettings Suite::settings_of(const PlannedCell& cell, const CellResult* needed, std::string& note) const {
  const SuiteArm& arm = arms_[cell.arm];
  run::TrainSettings settings = arm.settings;
  settings.seed = cell.seed;
  settings.out = run_folder(cell);
  if (!fault_.empty()) settings.experiment.fault_seed = cell.seed + 1;
  if (arm.arm.rule == ArmRule::late_high) {
    settings.set = {fmt::format("*=high@{}:", late_step(settings.steps))};
  }
  if (arm.arm.needs.empty()) return settings;
  if (needed == nullptr) throw Error(fmt::format("{} needs the arm {}", cell.name, arm.arm.needs));
  if (arm.arm.rule != ArmRule::ends_high) {
    settings.random_units = {random_share(*needed, arm.arm.rule, note)};
  } else {
    settings.always_high = end_globs(run::RunFolder(folder_ + "/" + needed->run).journal());
  }
  return settings;
}

std::optional<CellResult> Suite::finished(const PlannedCell& cell) const {
  const std::string path = cell_path(cell);
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return std::nullopt;
  return parse_cell(io::read_whole_file(path), path);
}

std::optional<CellResult> Suite::measure(const PlannedCell& cell, const std::string& note) const {
  std::optional<CellResult> result = measure_run(run_folder(cell));
  if (!result) return std::nullopt;
  result->arm = arms_[cell.arm].arm.name;
  result->run = "runs/" + cell.name;
  result->note = note;
  io::replace_file(cell_path(cell), write_cell(*result));
  return result;
}

}  // namespace gnmr::lab
