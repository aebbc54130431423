// SPDX-License-Identifier: Apache-2.0
// The naive second implementation on every golden trace, read by a CSV splitter of its own. With the environment
// variable GNMR_WRITE_GOLDEN it writes the decisions of the traces with errors instead: tests/golden/README.md.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "naive_controller.h"
#include "naive_judge.h"
#include "naive_judge_gated.h"

namespace gnmr::naive {
namespace {

using Norm = std::optional<double>;
using Indices = std::vector<std::size_t>;
using nlohmann::json;

constexpr double kInf = std::numeric_limits<double>::infinity();

std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    throw std::runtime_error("cannot read " + path.filename().string());
  }
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string without_blanks(const std::string& cell) {
  const std::size_t first = cell.find_first_not_of(" \t");
  if (first == std::string::npos) {
    return "";
  }
  return cell.substr(first, cell.find_last_not_of(" \t") - first + 1);
}

// Rows of cells: RFC 4180 quoting, LF or CRLF, a byte-order mark ignored, blank and white lines skipped. It trusts the
// file.
std::vector<std::vector<std::string>> split_csv(std::string text) {
  if (text.starts_with("\xEF\xBB\xBF")) {
    text.erase(0, 3);
  }
  if (!text.ends_with('\n')) {
    text += '\n';
  }
  std::vector<std::vector<std::string>> rows;
  std::vector<std::string> row;
  std::string cell;
  bool in_quotes = false;
  bool was_quoted = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (in_quotes) {
      if (c != '"') {
        cell += c;
      } else if (text[at + 1] == '"') {
        cell += '"';
        ++at;
      } else {
        in_quotes = false;
      }
    } else if (c == '"') {
      in_quotes = true;
      was_quoted = true;
      cell.clear();  // drops blanks before the quote
    } else if (c == ',' || c == '\n') {
      row.push_back(was_quoted ? cell : without_blanks(cell));
      const bool blank_line = c == '\n' && row.size() == 1 && row[0].empty() && !was_quoted;
      if (c == '\n') {
        if (!blank_line) {
          rows.push_back(row);
        }
        row.clear();
      }
      cell.clear();
      was_quoted = false;
    } else if (c != '\r' && !was_quoted) {
      cell += c;
    }
  }
  return rows;
}

// std::strtod knows every form of the page: signs, exponents, nan, inf and infinity in any case; too large is infinity,
// too small 0.
Norm to_norm(const std::string& cell) {
  if (cell.empty()) {
    return std::nullopt;
  }
  char* end = nullptr;
  const double norm = std::strtod(cell.c_str(), &end);
  if (end != cell.c_str() + cell.size()) {
    throw std::runtime_error("not a number: " + cell);
  }
  return norm;
}

Options to_options(const json& object) {
  Options options = object.value("preset", "default") == "paper" ? Options::paper() : Options{};
  const std::map<std::string, double*> reals = {
      {"beta", &options.beta},
      {"tau", &options.tau},
      {"delta_tau", &options.delta_tau},
      {"fall_tau", &options.fall_tau},
      {"baseline", &options.baseline},
      {"noise_factor", &options.noise_factor},
      {"noise_beta", &options.noise_beta},
      {"mean_cap", &options.mean_cap},
      {"common_share", &options.common_share},
      {"max_o", &options.max_o},
      {"max_cost", &options.max_cost},
      {"max_high_share", &options.max_high_share},
      {"error_factor", &options.error_factor},
      {"error_floor", &options.error_floor},
      {"error_ceiling", &options.error_ceiling},
      {"error_beta", &options.error_beta},
      {"coarse_error", &options.coarse_error},
      {"coarse_factor", &options.coarse_factor},
      {"coarse_fill", &options.coarse_fill},
  };
  const std::map<std::string, std::int64_t*> integers = {
      {"window", &options.window},
      {"warmup_samples", &options.warmup_samples},
      {"lock_steps", &options.lock_steps},
      {"max_lock_steps", &options.max_lock_steps},
      {"cooldown_steps", &options.cooldown_steps},
      {"group_max", &options.group_max},
      {"lag", &options.lag},
      {"max_trials", &options.max_trials},
      {"error_warmup", &options.error_warmup},
  };
  const std::map<std::string, std::string*> words = {{"selector", &options.selector}, {"guard", &options.guard}};
  for (const auto& [name, value] : object.items()) {
    if (reals.contains(name)) {
      *reals.at(name) = value.get<double>();
    } else if (integers.contains(name)) {
      *integers.at(name) = value.get<std::int64_t>();
    } else if (words.contains(name)) {
      *words.at(name) = value.get<std::string>();
    } else if (name != "preset") {
      throw std::runtime_error("unknown option " + name);
    }
  }
  return options;
}

std::vector<Unit> to_units(const std::vector<std::string>& header, const std::filesystem::path& units_path) {
  std::vector<Unit> units;
  for (std::size_t column = 1; column < header.size(); ++column) {
    units.push_back({.name = header[column], .cost = 1, .group = "", .forced = false});
  }
  if (std::filesystem::exists(units_path)) {
    const json file = json::parse(read_text(units_path));
    for (const json& entry : file.at("units")) {
      for (Unit& unit : units) {
        if (unit.name == entry.at("name").get<std::string>()) {
          unit.cost = entry.value("cost", std::int64_t{1});
          unit.group = entry.value("group", "");
        }
      }
    }
  }
  return units;
}

json names_of(const Indices& indices, const std::vector<Unit>& units) {
  json names = json::array();
  for (const std::size_t index : indices) {
    names.push_back(units[index].name);
  }
  return names;
}

std::vector<std::string> golden_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(GNMR_GOLDEN_DIR)) {
    const std::string name = entry.path().stem().string();
    if (entry.path().extension() == ".csv" && !name.ends_with(".errors")) {
      names.push_back(name);
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

// A trace and what is beside it.
struct Golden {
  explicit Golden(const std::string& name)
      : base(std::string(GNMR_GOLDEN_DIR) + "/" + name),
        rows(split_csv(read_text(base + ".csv"))),
        units(to_units(rows.at(0), base + ".units.json")),
        options(to_options(json::parse(read_text(base + ".options.json")))) {
    if (std::filesystem::exists(base + ".errors.csv")) {
      error_rows = split_csv(read_text(base + ".errors.csv"));
      sites = (error_rows.at(0).size() - 1) / units.size();
    }
  }

  std::int64_t step(std::size_t row) const { return std::stoll(rows[row].at(0)); }

  Norms norms(std::size_t row) const {
    Norms norms;
    for (std::size_t column = 1; column <= units.size(); ++column) {
      norms.push_back(to_norm(rows[row].at(column)));
    }
    return norms;
  }

  Errors errors(std::size_t row) const {
    Errors errors;
    for (std::size_t column = 1; column <= units.size() * sites; ++column) {
      errors.push_back(to_norm(error_rows.at(row).at(column)).value_or(std::numeric_limits<double>::quiet_NaN()));
    }
    return errors;
  }

  std::string base;
  std::vector<std::vector<std::string>> rows;  // the header first
  std::vector<Unit> units;
  Options options;
  std::vector<std::vector<std::string>> error_rows;  // empty: only norms are known
  std::size_t sites = 0;
};

std::vector<Decision> decisions_by_norms(const Golden& golden) {
  Controller controller(golden.units, golden.options);
  std::vector<Decision> decisions;
  for (std::size_t row = 1; row < golden.rows.size(); ++row) {
    decisions.push_back(controller.step(golden.norms(row)));
  }
  return decisions;
}

// A trial has the norms and the errors of the step.
std::vector<Decision> decisions_by_errors(const Golden& golden) {
  Judge judge(golden.units, golden.options, std::vector<double>(golden.sites, 0.0), /*can_rerun=*/true);
  std::vector<Decision> decisions;
  for (std::size_t row = 1; row < golden.rows.size(); ++row) {
    const Norms norms = golden.norms(row);
    const Errors errors = golden.errors(row);
    const bool trial = judge.hear(norms, errors, /*may_rerun=*/true).action == "trial";
    decisions.push_back(trial ? judge.conclude(norms, errors).decision : judge.decide().decision);
  }
  return decisions;
}

// With lag 1 a row is what the run of its step measures, whatever it is. `held`: the steps whose gates closed.
std::vector<Decision> decisions_with_gate(const Golden& golden, std::vector<bool>& held) {
  GatedJudge judge(golden.units, golden.options, std::vector<double>(golden.sites, 0.0), /*can_rerun=*/true);
  std::vector<Decision> decisions;
  for (std::size_t row = 1; row < golden.rows.size(); ++row) {
    judge.plan(golden.step(row));
    judge.begin(/*forbidden=*/false);
    held.push_back(judge.closes(golden.norms(row), golden.errors(row)));
    if (row > 1) {
      decisions.push_back(judge.settle(golden.norms(row - 1), golden.errors(row - 1), held[row - 2]).ruling.decision);
    }
  }
  const std::size_t last = golden.rows.size() - 1;
  judge.plan(golden.step(last) + 1);
  decisions.push_back(judge.settle(golden.norms(last), golden.errors(last), held[last - 1]).ruling.decision);
  return decisions;
}

nlohmann::ordered_json to_json(std::int64_t step, const Decision& decision, bool held, const std::vector<Unit>& units) {
  nlohmann::ordered_json line = {
      {"step", step},
      {"common", decision.common},
      {"admitted", names_of(decision.admitted, units)},
      {"denied", names_of(decision.denied, units)},
      {"futile", names_of(decision.futile, units)},
      {"released", names_of(decision.released, units)},
      {"recovered", names_of(decision.recovered, units)},
  };
  if (!decision.standing.empty()) {
    line["standing"] = names_of(decision.standing, units);
  }
  if (held) {
    line["held"] = true;
  }
  return line;
}

class NaiveGolden : public testing::TestWithParam<std::string> {};

TEST_P(NaiveGolden, TakesTheExpectedDecisions) {
  const Golden golden(GetParam());
  for (const auto& row : golden.rows) {
    ASSERT_EQ(row.size(), golden.units.size() + 1);
  }
  const bool has_errors = !golden.error_rows.empty();
  std::vector<bool> held(golden.rows.size() - 1);
  std::vector<Decision> decisions;
  if (!has_errors) {
    decisions = decisions_by_norms(golden);
  } else if (golden.options.lag == 0) {
    decisions = decisions_by_errors(golden);
  } else {
    held.clear();
    decisions = decisions_with_gate(golden, held);
  }
  const std::string path = golden.base + ".decisions.jsonl";
  if (has_errors && std::getenv("GNMR_WRITE_GOLDEN") != nullptr) {
    std::ofstream file(path);
    for (std::size_t row = 1; row < golden.rows.size(); ++row) {
      file << to_json(golden.step(row), decisions[row - 1], held[row - 1], golden.units).dump() << '\n';
    }
    return;
  }
  std::ifstream expected(path);
  std::string line;
  for (std::size_t row = 1; row < golden.rows.size(); ++row) {
    ASSERT_TRUE(std::getline(expected, line)) << "no decision for row " << row;
    const json actual = to_json(golden.step(row), decisions[row - 1], held[row - 1], golden.units);
    ASSERT_EQ(actual, json::parse(line)) << "row " << row;
  }
  EXPECT_FALSE(std::getline(expected, line)) << "decisions left over";
}

TEST_P(NaiveGolden, ErrorsAreOfTheStepsAndUnitsOfTheTrace) {
  const Golden golden(GetParam());
  if (golden.error_rows.empty()) {
    return;
  }
  ASSERT_EQ(golden.error_rows.size(), golden.rows.size());
  std::vector<std::string> header = {"step"};
  for (const Unit& unit : golden.units) {
    for (std::size_t site = 0; site < golden.sites; ++site) {
      header.push_back(unit.name + ":" + std::to_string(site));
    }
  }
  EXPECT_EQ(golden.error_rows[0], header);
  for (std::size_t row = 1; row < golden.rows.size(); ++row) {
    EXPECT_EQ(golden.error_rows[row].size(), header.size()) << "row " << row;
    EXPECT_EQ(golden.error_rows[row][0], golden.rows[row][0]);
  }
}

INSTANTIATE_TEST_SUITE_P(Traces, NaiveGolden, testing::ValuesIn(golden_names()),
                         [](const testing::TestParamInfo<std::string>& trace) { return trace.param; });

TEST(NaiveCsv, OddForms) {
  const auto rows = split_csv("\xEF\xBB\xBFstep,\"a, \"\"b\"\"\", c \r\n \t \r\n\r\n1,,\" 2\"\n3, 4 ,5.");
  const std::vector<std::vector<std::string>> expected = {{"step", "a, \"b\"", "c"}, {"1", "", " 2"}, {"3", "4", "5."}};
  EXPECT_EQ(rows, expected);
  EXPECT_EQ(to_norm(""), std::nullopt);
  EXPECT_EQ(to_norm("1e400"), kInf);
  EXPECT_EQ(to_norm("1e-400"), 0.0);
  EXPECT_EQ(to_norm("+.5"), 0.5);
}
}  // namespace
}  // namespace gnmr::naive
