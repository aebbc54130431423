// SPDX-License-Identifier: Apache-2.0
// suite.json: what a suite was asked for, with the exact settings of every arm.
//
// Goals: enough to run every cell by hand. Non-goals: results.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gnmr/lab/suite.h"

namespace gnmr::lab {

inline constexpr const char* kSuiteFileName = "suite.json";

/// What the file holds. Of an arm that is read, `texts` and `label` of its settings are what the settings say.
struct SuiteFile {
  std::string title = {};
  std::vector<std::string> notes = {};
  std::vector<std::int64_t> seeds = {};
  std::int64_t threads = 0;
  std::string fault = {};  // as in SuiteRequest
  std::vector<SuiteArm> arms = {};
};

/// Puts the file in its place: all of it or nothing.
void write_suite_file(const std::string& path, const SuiteFile& suite);

/// Reads such a file; the `Error` begins with its path.
SuiteFile read_suite_file(const std::string& path);

/// The same of any version, without the arms' settings.
SuiteFile read_suite_outline(const std::string& path);

}  // namespace gnmr::lab
