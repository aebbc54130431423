// SPDX-License-Identifier: Apache-2.0
#include "gnmr/report/suite_files.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "gnmr/io/text_error.h"
#include "gnmr/report/json_document.h"
#include "gnmr/report/run_files.h"

namespace gnmr::report {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// The objects of an array, each with its place for messages.
template <typename Visit>
void for_each_object(const JsonPlace& place, const char* key, Visit visit) {
  const json* const array = array_at(place, key);
  if (array == nullptr) return;
  for (std::size_t i = 0; i < array->size(); ++i) {
    const std::string where = place.where + ": " + key + "[" + std::to_string(i) + "]";
    if (!(*array)[i].is_object()) throw io::error_at(where, "must be an object");
    visit(JsonPlace{(*array)[i], where});
  }
}

std::string required_text(const JsonPlace& place, const char* key) {
  std::string text = text_at(place, key);
  if (text.empty()) throw io::error_at(place.where, std::string("has no \"") + key + "\"");
  return text;
}

std::vector<std::string> texts_at(const JsonPlace& place, const char* key) {
  std::vector<std::string> texts;
  const json* const array = array_at(place, key);
  if (array == nullptr) return texts;
  for (const json& text : *array) {
    if (!text.is_string()) throw io::error_at(place.where, std::string("\"") + key + "\" must be an array of texts");
    texts.push_back(text.get<std::string>());
  }
  return texts;
}

std::vector<std::int64_t> read_suite(const std::string& path, SuiteFiles& suite) {
  const json document = read_versioned_object(path);
  const JsonPlace place{document, path};
  suite.title = text_at(place, "title");
  suite.notes = texts_at(place, "notes");
  for_each_object(place, "arms", [&](const JsonPlace& arm) {
    SuiteArm read{required_text(arm, "name"), text_at(arm, "label"), text_at(arm, "about")};
    if (read.label.empty()) read.label = read.name;
    suite.arms.push_back(std::move(read));
  });
  std::vector<std::int64_t> seeds;
  if (const json* const array = array_at(place, "seeds")) {
    for (const json& seed : *array) {
      if (!seed.is_number_integer()) throw io::error_at(path, "\"seeds\" must be an array of whole numbers");
      seeds.push_back(seed.get<std::int64_t>());
    }
  }
  return seeds;
}

Summary read_summary(const std::string& path) {
  const json document = read_versioned_object(path);
  const JsonPlace place{document, path};
  Summary summary;
  summary.notes = texts_at(place, "notes");
  for_each_object(place, "columns", [&](const JsonPlace& column) {
    SummaryColumn read{required_text(column, "key"), text_at(column, "title"), text_at(column, "help")};
    if (read.title.empty()) read.title = read.key;
    summary.columns.push_back(std::move(read));
  });
  for_each_object(place, "rows", [&](const JsonPlace& row) {
    SummaryRow read{required_text(row, "arm"), {}};
    const auto cells = row.value.find("cells");
    if (cells != row.value.end() && !cells->is_object()) throw io::error_at(row.where, "\"cells\" must be an object");
    for (const SummaryColumn& column : summary.columns) {
      if (cells == row.value.end() || !cells->contains(column.key)) continue;
      const json& cell = cells->at(column.key);
      if (cell.is_null()) continue;
      const std::string where = row.where + ": " + column.key;
      if (!cell.is_object()) throw io::error_at(where, "must be an object");
      const JsonPlace inside{cell, where};
      read.cells.emplace(column.key, SummaryCell{text_at(inside, "text"), number_at(inside, "value"),
                                                 number_at(inside, "low"), number_at(inside, "high")});
    }
    summary.rows.push_back(std::move(read));
  });
  return summary;
}

std::vector<SuiteRunPlace> read_cells(const fs::path& directory) {
  std::vector<fs::path> paths;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory / "cells", ignored)) {
    if (entry.path().extension() == ".json") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<SuiteRunPlace> runs;
  for (const fs::path& path : paths) {
    const json document = read_versioned_object(path.string());
    const JsonPlace place{document, path.string()};
    SuiteRunPlace run;
    run.arm = required_text(place, "arm");
    run.seed = whole_at(place, "seed").value_or(0);
    std::string relative = text_at(place, "run");
    if (relative.empty()) relative = "runs/" + run.arm + "-seed" + std::to_string(run.seed);
    run.directory = (directory / relative).string();
    run.finished = true;
    runs.push_back(std::move(run));
  }
  return runs;
}

void find_runs(const std::string& directory, const std::vector<std::int64_t>& seeds, SuiteFiles& suite) {
  suite.runs = read_cells(directory);
  std::set<std::pair<std::string, std::int64_t>> known;
  for (const SuiteRunPlace& run : suite.runs) known.emplace(run.arm, run.seed);
  for (const SuiteArm& arm : suite.arms) {
    for (const std::int64_t seed : seeds) {
      const fs::path place = fs::path(directory) / "runs" / (arm.name + "-seed" + std::to_string(seed));
      if (known.contains({arm.name, seed}) || !is_run_directory(place.string())) continue;
      suite.runs.push_back({arm.name, seed, place.string(), false});
    }
  }
  const auto arm_index = [&](const std::string& name) {
    const auto found =
        std::find_if(suite.arms.begin(), suite.arms.end(), [&](const SuiteArm& arm) { return arm.name == name; });
    return found - suite.arms.begin();
  };
  for (const SuiteRunPlace& run : suite.runs) {
    if (arm_index(run.arm) == std::ssize(suite.arms)) suite.arms.push_back({run.arm, run.arm, {}});
  }
  std::stable_sort(suite.runs.begin(), suite.runs.end(), [&](const SuiteRunPlace& a, const SuiteRunPlace& b) {
    return std::pair(arm_index(a.arm), a.seed) < std::pair(arm_index(b.arm), b.seed);
  });
}

}  // namespace

bool is_suite_directory(const std::string& directory) {
  std::error_code ignored;
  return fs::exists(fs::path(directory) / "suite.json", ignored);
}

SuiteFiles read_suite_files(const std::string& directory) {
  SuiteFiles suite;
  const std::vector<std::int64_t> seeds = read_suite((fs::path(directory) / "suite.json").string(), suite);
  if (suite.title.empty()) suite.title = folder_name(directory);
  const fs::path summary = fs::path(directory) / "summary.json";
  std::error_code ignored;
  if (fs::exists(summary, ignored)) {
    suite.summary = read_summary(summary.string());
  } else {
    suite.remarks.emplace_back("There is no summary.json yet: the table of arms and measures is left out.");
  }
  find_runs(directory, seeds, suite);
  if (suite.runs.empty()) suite.remarks.emplace_back("No run has begun: there is nothing under runs/ or cells/.");
  return suite;
}

}  // namespace gnmr::report
