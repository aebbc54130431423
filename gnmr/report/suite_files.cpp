// SPDX-License-Identifier: Apache-2.0
#include "gnmr/report/suite_files.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "gnmr/io/whole_file.h"
#include "gnmr/lab/cell.h"
#include "gnmr/lab/suite_file.h"
#include "gnmr/report/run_files.h"

namespace gnmr::report {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLargestCell = std::size_t{64} << 20U;

std::vector<SuiteRunPlace> read_cells(const fs::path& directory) {
  std::vector<fs::path> paths;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory / "cells", ignored)) {
    if (entry.path().extension() == ".json") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<SuiteRunPlace> runs;
  for (const fs::path& path : paths) {
    const lab::CellResult cell = lab::parse_cell_place(io::read_whole_file(path.string(), kLargestCell), path.string());
    runs.push_back({cell.arm, cell.seed, (directory / cell.run).string(), true});
  }
  return runs;
}

void find_runs(const std::string& directory, const std::vector<std::int64_t>& seeds, SuiteFiles& suite) {
  suite.runs = read_cells(directory);
  std::set<std::pair<std::string, std::int64_t>> known;
  for (const SuiteRunPlace& run : suite.runs) known.emplace(run.arm, run.seed);
  for (const lab::Arm& arm : suite.arms) {
    for (const std::int64_t seed : seeds) {
      const fs::path place = fs::path(directory) / "runs" / (arm.name + "-seed" + std::to_string(seed));
      if (known.contains({arm.name, seed}) || !is_run_directory(place.string())) continue;
      suite.runs.push_back({arm.name, seed, place.string(), false});
    }
  }
  const auto arm_index = [&](const std::string& name) {
    const auto found =
        std::find_if(suite.arms.begin(), suite.arms.end(), [&](const lab::Arm& arm) { return arm.name == name; });
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
  return fs::exists(fs::path(directory) / lab::kSuiteFileName, ignored);
}

SuiteFiles read_suite_files(const std::string& directory) {
  SuiteFiles suite;
  lab::SuiteFile file = lab::read_suite_outline((fs::path(directory) / lab::kSuiteFileName).string());
  suite.title = std::move(file.title);
  suite.notes = std::move(file.notes);
  for (lab::SuiteArm& arm : file.arms) suite.arms.push_back(std::move(arm.arm));
  if (suite.title.empty()) suite.title = folder_name(directory);
  const fs::path summary = fs::path(directory) / "summary.json";
  std::error_code ignored;
  if (fs::exists(summary, ignored)) {
    suite.summary = lab::read_summary(summary.string());
  } else {
    suite.remarks.emplace_back("There is no summary.json yet: the table of arms and measures is left out.");
  }
  find_runs(directory, file.seeds, suite);
  if (suite.runs.empty()) suite.remarks.emplace_back("No run has begun: there is nothing under runs/ or cells/.");
  return suite;
}

}  // namespace gnmr::report
