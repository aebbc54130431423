// SPDX-License-Identifier: Apache-2.0
// Reads the directory of a suite: suite.json, summary.json, cells/*.json, and finds the directories of its runs.
//
// Goals: a suite that is half done is read as far as it goes. Non-goals: what the files hold (gnmr/lab).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gnmr/lab/regimes.h"
#include "gnmr/lab/summary.h"

namespace gnmr::report {

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
  std::vector<lab::Arm> arms;
  std::optional<lab::Summary> summary;
  std::vector<SuiteRunPlace> runs;  // by arm, then by seed
  std::vector<std::string> remarks;
};

/// Whether the directory holds a suite.
bool is_suite_directory(const std::string& directory);

/// Reads what is there; an `Error` that names the file where one cannot be used.
SuiteFiles read_suite_files(const std::string& directory);

}  // namespace gnmr::report
