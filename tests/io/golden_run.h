// SPDX-License-Identifier: Apache-2.0
// The traces of tests/golden with the decisions that they must give.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
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
};

struct GoldenRun {
  std::vector<Unit> units;
  Options options;
  std::vector<GoldenRow> rows;
};

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
                        nlohmann::json::parse(line)});
  }
  return run;
}

/// The names of all golden traces.
inline std::vector<std::string> golden_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(GNMR_GOLDEN_DIR)) {
    if (entry.path().extension() == ".csv") names.push_back(entry.path().stem().string());
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
  return {{"step", decision.step},
          {"common", decision.common},
          {"admitted", names(decision.admitted)},
          {"denied", names(decision.denied)},
          {"futile", names(decision.futile)},
          {"released", names(decision.released)},
          {"recovered", names(decision.recovered)}};
}

}  // namespace gnmr::io::golden
