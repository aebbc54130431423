// SPDX-License-Identifier: Apache-2.0
#include "abuse/same_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <filesystem>
#include <map>
#include <utility>
#include <vector>

#include "apps/train/train_program.h"
#include "gnmr/io/signals_file.h"
#include "gnmr/run/evidence.h"
#include "gnmr/run/harm.h"

namespace gnmr::abuse {
namespace {

namespace fs = std::filesystem;
using test::content_of;

bool is_there(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool is_data(const std::string& name) {
  return name.ends_with(".safetensors") || name.ends_with(".gnmr") || name == "config.json";
}

/// All numbers of signals.bin or errors.bin by step, as bits: NaN is equal to itself.
std::map<std::int64_t, std::vector<std::uint32_t>> signals_of(const std::string& path) {
  std::map<std::int64_t, std::vector<std::uint32_t>> rows;
  if (!is_there(path)) return rows;
  io::SignalsReader reader(path);
  for (io::SignalsRow row; reader.next(row);) {
    rows.erase(rows.lower_bound(row.step), rows.end());
    std::vector<std::uint32_t>& bits = rows[row.step];
    for (const float value : row.values) bits.push_back(std::bit_cast<std::uint32_t>(value));
  }
  return rows;
}

/// Errors of casts by step and unit, as text.
std::map<std::pair<std::int64_t, std::string>, std::string> evidence_of(const std::string& run) {
  std::map<std::pair<std::int64_t, std::string>, std::string> lines;
  if (!is_there(run + "/evidence.jsonl")) return lines;
  for (const run::EvidenceLine& line : run::read_evidence(run + "/evidence.jsonl")) {
    lines[{line.step, line.unit}] = fmt::format("{} {} {}", line.relative_error, line.saturated, line.flushed);
  }
  return lines;
}

std::map<std::pair<std::int64_t, std::string>, std::string> harm_of(const std::string& run) {
  std::map<std::pair<std::int64_t, std::string>, std::string> lines;
  if (!is_there(run + "/harm.jsonl")) return lines;
  for (const run::HarmLine& line : run::read_harm(run + "/harm.jsonl")) {
    lines[{line.step, line.layer}] = fmt::format("{}", line.distance);
  }
  return lines;
}

/// The rows of norms.csv or errors.csv by step: each file `NAME-from-N.csv` takes the place of rows from N on.
std::map<std::int64_t, std::string> trace_of(const std::string& run, const std::string& name) {
  std::map<std::int64_t, std::string> files;
  for (const std::string& file : names_in(run)) {
    long long first = 1;
    if (file == name + ".csv" || std::sscanf(file.c_str(), (name + "-from-%lld.csv").c_str(), &first) == 1) {
      files[first] = run + "/" + file;
    }
  }
  std::map<std::int64_t, std::string> rows;
  for (const auto& [first, file] : files) {
    rows.erase(rows.lower_bound(first), rows.end());
    for (const std::string& line : test::lines_of(content_of(file))) {
      if (line.starts_with("step")) continue;
      rows[std::strtoll(line.c_str(), nullptr, 10)] = line;
    }
  }
  return rows;
}

/// Trials of a run, without the time that they took.
std::vector<std::string> trials_of(const std::string& run) {
  std::vector<std::string> lines;
  if (!is_there(run + "/journal.jsonl")) return lines;
  for (const io::JournalStepEntry& entry : io::read_journal(run + "/journal.jsonl").steps) {
    for (const io::JournalTrial& trial : entry.trials) {
      std::string line =
          fmt::format("{} {} {} {}", entry.number, trial.rerun, trial.verdict, trial.applied.value_or(false));
      for (const std::string& unit : trial.units) line += " " + unit;
      for (const double error : trial.errors) line += fmt::format(" {}", error);
      lines.push_back(line);
    }
  }
  return lines;
}

/// The first key whose values differ, in words; empty: none.
template <class Map>
std::string map_difference(const std::string& what, const Map& expected, const Map& found) {
  if (expected == found) return {};
  for (const auto& [key, value] : expected) {
    const auto other = found.find(key);
    if (other != found.end() && other->second == value) continue;
    const char* const how = other == found.end() ? "is missing" : "differs";
    if constexpr (std::is_same_v<typename Map::key_type, std::int64_t>) {
      return fmt::format("{}: step {} {}", what, key, how);
    } else {
      return fmt::format("{}: step {}, {} {}", what, key.first, key.second, how);
    }
  }
  return fmt::format("{}: {} entries more than expected", what, found.size() - expected.size());
}

std::string list_difference(const std::string& what, const std::vector<std::string>& expected,
                            const std::vector<std::string>& found) {
  if (expected == found) return {};
  const auto [one, other] = std::mismatch(expected.begin(), expected.end(), found.begin(), found.end());
  return fmt::format("{}: expected `{}`, found `{}`", what, one == expected.end() ? "the end" : *one,
                     other == found.end() ? "the end" : *other);
}

std::string metrics_difference(const std::string& expected, const std::string& run) {
  const run::Metrics one = testing::metrics_of(expected);
  const run::Metrics other = testing::metrics_of(run);
  // Text, because a loss may be NaN.
  const auto train_lines = [](const run::Metrics& metrics) {
    std::vector<std::string> lines;
    for (const run::TrainLine& line : metrics.train) {
      lines.push_back(
          fmt::format("step {} loss {} lr {} norm {} clip {} applied {} tokens {} recovered {} high {} batch {}",
                      line.step, line.loss, line.lr, line.grad_norm, line.clip, line.applied, line.tokens,
                      line.recovered.value_or(0), line.high, line.batch.value_or(line.step)));
    }
    for (const run::EvalLine& line : metrics.evals) {
      lines.push_back(
          fmt::format("eval {} high {} low {}", line.step, line.loss_high.value_or(-1), line.loss_low.value_or(-1)));
    }
    return lines;
  };
  if (other.torn) return "metrics.jsonl: the last line is torn after the run has finished";
  return list_difference("metrics.jsonl", train_lines(one), train_lines(other));
}

std::string leftover(const std::string& run) {
  for (const std::string& name : names_in(run + "/checkpoints")) {
    if (!name.starts_with("step-")) return "checkpoints/" + name + " is left over";
  }
  return {};
}

}  // namespace

std::string checkpoint_folder(const std::string& run, std::int64_t step) {
  return fmt::format("{}/checkpoints/step-{:08}", run, step);
}

std::int64_t newest_checkpoint(const std::string& run) {
  std::int64_t newest = 0;
  for (const std::string& name : names_in(run + "/checkpoints")) {
    long long step = 0;
    if (std::sscanf(name.c_str(), "step-%lld", &step) == 1) newest = std::max<std::int64_t>(newest, step);
  }
  return newest;
}

std::string checkpoint_difference(const std::string& expected_run, const std::string& run, std::int64_t step) {
  const std::string expected = checkpoint_folder(expected_run, step);
  const std::string found = checkpoint_folder(run, step);
  if (names_in(expected) != names_in(found)) return fmt::format("the checkpoint of step {} has other files", step);
  for (const std::string& name : names_in(expected)) {
    if (is_data(name) && content_of(expected + "/" + name) != content_of(found + "/" + name)) {
      return fmt::format("{} of step {} differs", name, step);
    }
  }
  return names_in(found).empty() ? fmt::format("there is no checkpoint of step {}", step) : std::string();
}

std::string run_difference(const std::string& expected, const std::string& run) {
  std::vector<std::string> found{checkpoint_difference(expected, run, newest_checkpoint(expected)),
                                 metrics_difference(expected, run), leftover(run)};
  if (is_there(expected + "/journal.jsonl")) {
    found.push_back(list_difference("journal.jsonl", testing::decisions_of(expected), testing::decisions_of(run)));
    found.push_back(list_difference("journal.jsonl, trials", trials_of(expected), trials_of(run)));
  }
  for (const std::string name : {"signals.bin", "errors.bin"}) {
    found.push_back(map_difference(name, signals_of(expected + "/" + name), signals_of(run + "/" + name)));
  }
  found.push_back(map_difference("evidence.jsonl", evidence_of(expected), evidence_of(run)));
  found.push_back(map_difference("harm.jsonl", harm_of(expected), harm_of(run)));
  for (const char* const trace : {"norms", "errors"}) {
    found.push_back(map_difference(std::string(trace) + ".csv", trace_of(expected, trace), trace_of(run, trace)));
  }
  for (const char* const name : {"/faults.csv", "/faults.jsonl"}) {
    if (content_of(expected + name) != content_of(run + name)) found.push_back(std::string(name + 1) + " differs");
  }
  std::string all;
  for (const std::string& one : found) {
    if (!one.empty()) all += (all.empty() ? "" : "; ") + one;
  }
  return all;
}

}  // namespace gnmr::abuse
