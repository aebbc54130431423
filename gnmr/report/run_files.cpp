// SPDX-License-Identifier: Apache-2.0
#include "gnmr/report/run_files.h"

#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <span>
#include <utility>

#include "gnmr/core/error.h"
#include "gnmr/io/json.h"
#include "gnmr/io/signals_file.h"
#include "gnmr/io/truth.h"
#include "gnmr/io/whole_file.h"
#include "gnmr/report/number_format.h"
#include "gnmr/run/run_batches.h"

namespace gnmr::report {
namespace {

namespace fs = std::filesystem;

/// The path of a file in the directory; empty where it is not there.
std::string path_if_there(const std::string& directory, const char* name) {
  const fs::path path = fs::path(directory) / name;
  std::error_code ignored;
  return fs::exists(path, ignored) ? path.string() : std::string();
}

/// The same for files that a run makes long before it writes to them: an empty one is not there yet.
std::string path_if_begun(const std::string& directory, const char* name) {
  const std::string path = path_if_there(directory, name);
  std::error_code ignored;
  return !path.empty() && fs::is_regular_file(path, ignored) && fs::file_size(path, ignored) == 0 ? std::string()
                                                                                                  : path;
}

/// A scalar as text for people; nothing for objects, lists and null.
std::optional<std::string> scalar_text(const io::Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (value.is_number_unsigned()) return grouped(value.get<std::uint64_t>());
  if (value.is_number_integer()) return std::to_string(value.get<std::int64_t>());
  if (value.is_number_float()) return number_text(value.get<double>());
  return std::nullopt;
}

void read_info(const std::string& path, RunFiles& run) {
  const std::string text = io::read_whole_file(path, run::kLargestRunJson);
  run.info = run::parse_any_run_info(text, path);
  // Whatever there is, known or not; objects are followed one level down: `model.name`.
  const io::Json document = io::parse_json(text);
  for (const auto& [key, value] : document.items()) {
    if (key == "version") continue;
    if (const auto shown = scalar_text(value)) run.settings.emplace_back(key, *shown);
    if (!value.is_object()) continue;
    for (const auto& [inner_key, inner] : value.items()) {
      if (const auto shown = scalar_text(inner)) run.settings.emplace_back(key + "." + inner_key, *shown);
    }
  }
}

// Spans of a unit end where a row says 0; rows may be left out where nothing was injected.
std::vector<FaultSpan> read_fault_spans(const std::string& path) {
  io::TruthReader reader = io::open_truth(path);
  std::vector<FaultSpan> spans;
  constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::vector<std::size_t> open(reader.units().size(), kNone);
  std::int64_t step_before = 0;
  for (io::TruthRow row; reader.next(row); step_before = row.step) {
    for (std::size_t unit = 0; unit < row.faulty.size(); ++unit) {
      if (row.faulty[unit] == 0) {
        open[unit] = kNone;
      } else if (open[unit] != kNone && row.step == step_before + 1) {
        spans[open[unit]].last_step = row.step;
      } else {
        open[unit] = spans.size();
        spans.push_back({reader.units()[unit], row.step, row.step});
      }
    }
  }
  return spans;
}

// Rows are of batches, and a map has steps. The two differ once a batch was held (lag 1).
void place_in_steps(const run::RunBatches& batches, std::vector<FaultSpan>& spans) {
  for (FaultSpan& span : spans) {
    span.first_step = batches.first_step(span.first_step);
    span.last_step = batches.last_step(span.last_step);
  }
}

void take_journal(const std::string& path, RunFiles& run) {
  run.journal = io::read_journal(path);
  run.history = recovery_history(*run.journal);
  if (run.journal->torn) run.remarks.emplace_back("The last line of journal.jsonl is torn and was skipped.");
  if (run.journal->dropped > 0) {
    run.remarks.push_back("journal.jsonl lacks " + counted(run.journal->dropped, "line") +
                          " that could not be written in time.");
  }
}

void read_journal_of(const std::string& directory, RunFiles& run) {
  const std::string path = path_if_there(directory, "journal.jsonl");
  if (path.empty()) {
    const bool uncontrolled = run.info && run.info->controller == "none";
    if (!uncontrolled) run.remarks.emplace_back("There is no journal.jsonl: nothing is known of recoveries.");
    return;
  }
  take_journal(path, run);
}

/// What is wrong with a file of so many units; empty: nothing. A damaged header shifts every row: a map would show one
/// unit's numbers under another's name.
std::string misfit(const char* name, std::size_t unit_count, const RunFiles& run) {
  if (!run.journal || !run.journal->header || run.journal->header->units.size() == unit_count) return {};
  return fmt::format("the header of {} has {}, the journal's {}: one of them is damaged", name,
                     counted(unit_count, "unit"), run.journal->header->units.size());
}

/// The chronic units and, with limits, the map; where all units fit into the map, both from one reading behind the
/// survey.
void take_errors(const std::string& path, const UnitMapLimits* limits, RunFiles& run) {
  const io::JournalHeader& header = *run.journal->header;
  const RowSurvey survey = survey_rows(path, MapKind::errors);
  std::optional<UnitMapPainter> painter;
  if (limits != nullptr && header.units.size() <= limits->rows) {
    painter.emplace(MapKind::errors, io::SignalsReader(path), survey, std::span<const std::uint64_t>(), *limits);
  }
  ChronicUnits found = find_chronic_units(path, header, survey, [&](const io::SignalsRow& row) {
    if (painter) painter->take(row);
  });
  if (limits != nullptr && !painter) {
    // Chronic units are shown whatever else is left out.
    std::vector<std::uint64_t> chronic(header.units.size(), 0);
    for (const ChronicUnit& unit : found.units) chronic[unit.unit] = 1;
    io::SignalsReader reader(path);
    painter.emplace(MapKind::errors, reader, survey, chronic, *limits);
    for_rows_that_count(reader, survey, [&](const io::SignalsRow& row) { painter->take(row); });
  }
  run.chronic = std::move(found);
  if (!painter) return;
  run.errors = painter->finish();
  if (run.errors->torn) run.remarks.emplace_back("The last row of errors.bin is torn and was skipped.");
}

void read_errors_of(const std::string& directory, const UnitMapLimits* limits, RunFiles& run) {
  const std::string path = path_if_begun(directory, "errors.bin");
  // Without the journal's names errors say nothing.
  if (path.empty() || !run.journal || !run.journal->header) return;
  try {
    run.errors_problem = misfit("errors.bin", io::SignalsReader(path).unit_count(), run);
    if (run.errors_problem.empty()) take_errors(path, limits, run);
  } catch (const Error& error) {
    run.errors_problem = error.what();
  }
  if (run.errors_problem.empty()) return;
  run.remarks.push_back("Errors of units and chronic units are left out: " + run.errors_problem + ".");
}

void read_signals_of(const std::string& directory, const UnitMapLimits& limits, RunFiles& run) {
  const std::string path = path_if_begun(directory, "signals.bin");
  if (path.empty()) {
    run.remarks.emplace_back("There is no signals.bin: the heat map is left out.");
    return;
  }
  UnitMap ratios = read_unit_map(path, MapKind::ratios, run.history.events_of_unit, limits);
  if (const std::string problem = misfit("signals.bin", ratios.unit_count, run); !problem.empty()) {
    run.remarks.push_back("The heat map is left out: " + problem + ".");
    return;
  }
  if (ratios.torn) run.remarks.emplace_back("The last row of signals.bin is torn and was skipped.");
  run.ratios = std::move(ratios);
}

/// `limits`: those of the pictures that are wanted too; null: none are.
RunFiles read_records(const std::string& directory, const UnitMapLimits* limits) {
  RunFiles run;
  run.name = folder_name(directory);
  if (const std::string path = path_if_there(directory, "run.json"); !path.empty()) {
    read_info(path, run);
  } else {
    run.remarks.emplace_back("There is no run.json: what was run is not known.");
  }
  if (const std::string path = path_if_there(directory, "metrics.jsonl"); !path.empty()) {
    run.metrics = run::read_metrics(path);
    if (run.metrics->dropped > 0) {
      run.remarks.push_back("metrics.jsonl lacks " + counted(run.metrics->dropped, "line") +
                            " that could not be written in time.");
    }
    if (run.metrics->torn) run.remarks.emplace_back("The last line of metrics.jsonl is torn and was skipped.");
  } else {
    run.remarks.emplace_back("There is no metrics.jsonl: losses and gradient norms are left out.");
  }
  read_journal_of(directory, run);
  read_errors_of(directory, limits, run);
  return run;
}

}  // namespace

bool is_run_directory(const std::string& directory) {
  return !path_if_there(directory, "run.json").empty() || !path_if_there(directory, "journal.jsonl").empty();
}

std::string folder_name(const std::string& directory) {
  // A path that the system does not take, as a damaged file may name one, is not resolved.
  std::error_code failed;
  const fs::path resolved = fs::weakly_canonical(fs::path(directory), failed);
  return (failed ? fs::path(directory) : resolved).filename().string();
}

RunFiles read_journal_alone(const std::string& path) {
  RunFiles run;
  take_journal(path, run);
  return run;
}

RunFiles read_run_records(const std::string& directory) { return read_records(directory, nullptr); }

RunFiles read_run_files(const std::string& directory, const UnitMapLimits& limits) {
  RunFiles run = read_records(directory, &limits);
  read_signals_of(directory, limits, run);
  if (const std::string path = path_if_begun(directory, "faults.csv"); !path.empty()) {
    run.faults = read_fault_spans(path);
    if (run.metrics) place_in_steps(run::RunBatches(run.metrics->train), *run.faults);
  }
  return run;
}

}  // namespace gnmr::report
