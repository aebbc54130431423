// SPDX-License-Identifier: Apache-2.0
// Reads run.json: what was run. Every key but `version` may be absent; keys that are not known are shown as they are.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace gnmr::report {

/// What was run.
struct RunInfo {
  std::string label;
  std::string model;
  std::optional<double> parameters;
  std::string recipe;
  std::string controller;  // `none`, `gnmr`, `watch`
  std::string faults;      // in words; empty: none were injected
  std::string started;
  std::optional<std::int64_t> steps;
  std::optional<std::int64_t> seed;
  std::optional<std::int64_t> budget;                         // units in recovery at one time
  std::vector<std::pair<std::string, std::string>> settings;  // every scalar of the file, by name
};

/// Reads a file; an `Error` that begins with its path where it cannot be used.
RunInfo read_run_info(const std::string& path);

}  // namespace gnmr::report
