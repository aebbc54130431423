// SPDX-License-Identifier: Apache-2.0
// Reads the directory of a suite: suite.json, summary.json, cells/*.json, and finds the directories of its runs.
//
// Goals: a suite that is half done is read as far as it goes. Non-goals: computing the summary (gnmr/lab does that).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace gnmr::report {

/// One way to train that is compared with others.
struct SuiteArm {
  std::string name;
  std::string label;
  std::string about;
};

/// A measure in the table.
struct SummaryColumn {
  std::string key;
  std::string title;
  std::string help;
};

/// An entry of the table.
struct SummaryCell {
  std::string text;
  std::optional<double> value, low, high;
};

/// An arm's entries, by the column's key; some may be missing.
struct SummaryRow {
  std::string arm;
  std::map<std::string, SummaryCell> cells;
};

/// The table of arms and measures.
struct Summary {
  std::vector<SummaryColumn> columns;
  std::vector<SummaryRow> rows;
  std::vector<std::string> notes;
};

/// Where a run of the suite lies.
struct SuiteRunPlace {
  std::string arm;
  std::int64_t seed = 0;
  std::string directory;
  bool finished = false;  // its cell is there
};

/// What the files say.
struct SuiteFiles {
  std::string title;
  std::vector<std::string> notes;
  std::vector<SuiteArm> arms;
  std::optional<Summary> summary;
  std::vector<SuiteRunPlace> runs;  // by arm, then by seed
  std::vector<std::string> remarks;
};

/// Whether the directory holds a suite.
bool is_suite_directory(const std::string& directory);

/// Reads what is there; an `Error` that names the file where one cannot be used.
SuiteFiles read_suite_files(const std::string& directory);

}  // namespace gnmr::report
