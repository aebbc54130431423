// SPDX-License-Identifier: Apache-2.0
// Reads the directory of a run into plain values: run.json, metrics.jsonl, journal.jsonl, signals.bin, errors.bin,
// faults.csv.
//
// Goals: each file may be missing, and what a killed run left behind is read as far as it goes; both are reported.
// Non-goals: drawing, judging.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gnmr/io/journal_reader.h"
#include "gnmr/report/chronic.h"
#include "gnmr/report/recoveries.h"
#include "gnmr/report/unit_map.h"
#include "gnmr/run/metrics.h"
#include "gnmr/run/run_folder.h"

namespace gnmr::report {

/// Steps in which a unit had a fault that was injected.
struct FaultSpan {
  std::string unit;
  std::int64_t first_step = 0;
  std::int64_t last_step = 0;
};

/// What the files say.
struct RunFiles {
  std::string name;                                           // of the directory
  std::optional<run::RunInfo> info;                           // without settings
  std::vector<std::pair<std::string, std::string>> settings;  // every number, text and truth value of run.json, by name
  std::optional<run::Metrics> metrics;
  std::optional<io::Journal> journal;
  RecoveryHistory history;  // of the journal; empty where there is none
  std::optional<UnitMap> ratios;
  std::optional<UnitMap> errors;
  std::optional<ChronicUnits> chronic;  // where errors were written and can be read
  std::string errors_problem;           // why errors.bin cannot be read; a remark says it too
  std::optional<std::vector<FaultSpan>> faults;
  std::vector<std::string> remarks;  // what is missing, torn or odd, in sentences
};

/// Whether the directory holds a run.
bool is_run_directory(const std::string& directory);

/// The directory's own name, links and dots resolved where that can be done.
std::string folder_name(const std::string& directory);

/// Reads run.json, metrics.jsonl and journal.jsonl, and of errors.bin the chronic units: all that needs no pictures.
/// A damaged errors.bin is left out.
RunFiles read_run_records(const std::string& directory);

/// The same of a journal alone; `-` is standard input.
RunFiles read_journal_alone(const std::string& path);

/// Reads what is there; an `Error` with file and line for a file that is damaged other than at its end.
RunFiles read_run_files(const std::string& directory, const UnitMapLimits& limits);

}  // namespace gnmr::report
