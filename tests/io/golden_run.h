// SPDX-License-Identifier: Apache-2.0
// The traces of tests/golden with the decisions that they must give.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gnmr/core/controller.h"
#include "gnmr/io/options_json.h"
#include "gnmr/io/trace.h"
#include "gnmr/io/units_json.h"

namespace gnmr::io::golden {

struct GoldenRow {
  std::int64_t step;
  std::vector<double> norms;
  std::vector<std::uint8_t> sampled;
  nlohmann::json decision;
  std::vector<double> errors;  // units x sites; empty where only norms are known
};

struct GoldenRun {
  std::vector<Unit> units;
  Options options;
  std::vector<GoldenRow> rows;
  std::uint32_t sites = 0;
};

/// Adds the errors of NAME.errors.csv, which is a trace as well: a column per unit and site.
inline void add_errors(GoldenRun& run, const std::string& path) {
  const auto reader = open_trace(path);
  run.sites = static_cast<std::uint32_t>(reader->units().size() / run.units.size());
  TraceRow row;
  for (GoldenRow& golden : run.rows) {
    ASSERT_TRUE(reader->next(row)) << path;
    ASSERT_EQ(row.step, golden.step) << path;
    for (std::size_t i = 0; i < row.norms.size(); ++i) {
      golden.errors.push_back(row.sampled[i] != 0 ? row.norms[i] : std::numeric_limits<double>::quiet_NaN());
    }
  }
}

inline GoldenRun load_golden(const std::string& name) {
  const std::string base = std::string(GNMR_GOLDEN_DIR) + "/" + name;
  const auto reader = open_trace(base + ".csv");
  GoldenRun run;
  run.options = read_options_file(base + ".options.json");
  if (std::filesystem::exists(base + ".units.json")) {
    run.units = read_units(base + ".units.json", reader->units());
  } else {
    for (const std::string& unit : reader->units()) run.units.push_back({.name = unit});
  }
  std::ifstream decisions(base + ".decisions.jsonl");
  std::string line;
  TraceRow row;
  while (reader->next(row)) {
    EXPECT_TRUE(std::getline(decisions, line)) << name;
    run.rows.push_back({row.step,
                        {row.norms.begin(), row.norms.end()},
                        {row.sampled.begin(), row.sampled.end()},
                        nlohmann::json::parse(line),
                        {}});
  }
  if (std::filesystem::exists(base + ".errors.csv")) add_errors(run, base + ".errors.csv");
  return run;
}

/// Whether errors are beside a golden trace.
enum class Beside : std::uint8_t { nothing, errors };

/// The names of all golden traces of one kind.
inline std::vector<std::string> golden_names(Beside beside = Beside::nothing) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(GNMR_GOLDEN_DIR)) {
    const std::string name = entry.path().stem().string();
    if (entry.path().extension() != ".csv" || name.ends_with(".errors")) continue;
    const bool has_errors = std::filesystem::exists(std::string(GNMR_GOLDEN_DIR) + "/" + name + ".errors.csv");
    if (has_errors == (beside == Beside::errors)) names.push_back(name);
  }
  return names;
}

/// A decision as it stands in a file of decisions.
inline nlohmann::json decision_json(const Decision& decision, const std::vector<Unit>& units) {
  const auto names = [&](std::span<const UnitIndex> list) {
    nlohmann::json result = nlohmann::json::array();
    for (const UnitIndex unit : list) result.push_back(units[unit].name);
    return result;
  };
  nlohmann::json result = {{"step", decision.step},
                           {"common", decision.common},
                           {"admitted", names(decision.admitted)},
                           {"denied", names(decision.denied)},
                           {"futile", names(decision.futile)},
                           {"released", names(decision.released)},
                           {"recovered", names(decision.recovered)}};
  if (!decision.standing.empty()) result["standing"] = names(decision.standing);
  return result;
}

}  // namespace gnmr::io::golden
