// SPDX-License-Identifier: Apache-2.0
// Runs one suite of the lab: what the commands `demo`, `stress` and `faults` have in common.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "gnmr/lab/cell_runner.h"
#include "gnmr/lab/suite.h"
#include "gnmr/lab/summary.h"

namespace CLI {
class App;
}

namespace gnmr::app {

/// The flags that every suite has.
struct LabArguments {
  std::string out;                  // empty: the command's own
  std::int64_t steps = 0;           // 0: the regime's
  std::size_t jobs = 0;             // cells at a time; 0: as many as cores
  std::int64_t threads = 0;         // of a cell; 0: cores / jobs
  std::int64_t stall_limit = 1800;  // seconds
  bool resume = false;
  bool quiet = false;
  bool prints_table = true;             // to standard output
  std::vector<std::string> train = {};  // NAME=VALUE
};

/// Adds these flags, but for --out (lab_command.cpp).
void add_suite_flags(CLI::App& command, LabArguments& arguments);

/// A suite that has been run, as far as it got.
struct SuiteRun {
  lab::Suite suite;
  lab::SuiteOutcome outcome;
  std::string report_path = {};  // empty: there is none

  /// Of each cell in the order of the suite; none where it has none.
  std::vector<std::optional<lab::CellResult>> results() const;
};

/// What the suite sets itself cannot be passed through; `own` are names beside those that every suite sets.
void check_train_texts(const std::vector<std::string>& texts, const std::vector<std::string>& own = {});

/// A request with the flags that every suite has; `texts` come before the user's.
lab::SuiteRequest request_from(const LabArguments& arguments, const std::string& folder,
                               std::vector<std::string> texts);

/// What a reader of the results must know of how they came about.
std::vector<std::string> notes_for(const lab::SuiteRequest& request, const LabArguments& arguments);

/// A table as wide as the terminal is.
std::string columns_text(const lab::Summary& summary);

/// Runs one suite, prints its table and writes its summary and report.
SuiteRun run_suite(const lab::SuiteRequest& request, const LabArguments& arguments);

/// Prints the lines that every suite ends with.
void print_end(const SuiteRun& run, std::FILE* stream = stdout);

/// The exit status that the suite asks for.
int status_of(const SuiteRun& run);

}  // namespace gnmr::app
