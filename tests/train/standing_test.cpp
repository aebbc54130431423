// SPDX-License-Identifier: Apache-2.0
// Standing recoveries in real runs: layers whose low path is always far worse than that of others.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "gnmr/io/signals_file.h"
#include "train/small_run.h"

namespace gnmr::train {
namespace {

using testing::decisions_of;
using testing::finish;
using testing::FinishedRun;
using testing::Recorder;
using testing::same_weights;
using testing::SmallRuns;

constexpr std::int64_t kReviewSteps = 20;  // docs/algorithm.md, "Standing recovery"

run::TrainSettings standing_settings(const SmallRuns& runs, const std::string& name) {
  run::TrainSettings settings = runs.settings(name);
  settings.model = "nano";
  settings.recipe = "int4-act";
  settings.steps = 60;
  settings.sequence = 32;
  settings.lr = 0.001;
  settings.warmup = 20;
  settings.patrol = 1;
  settings.errors = true;
  settings.options.max_o = 4;
  return settings;
}

/// The rows of errors.bin that count, by step.
std::map<std::int64_t, std::vector<float>> error_rows(const run::TrainSettings& settings) {
  io::SignalsReader reader(settings.out + "/errors.bin");
  EXPECT_EQ(reader.sites(), nn::kProductCount);
  EXPECT_FALSE(reader.torn());
  std::map<std::int64_t, std::vector<float>> rows;
  for (io::SignalsRow row; reader.next(row);) {
    rows.erase(rows.lower_bound(row.step), rows.end());
    rows[row.step] = row.values;
  }
  return rows;
}

/// The same of errors.csv, which a run without reruns has row by row; NaN: not measured.
std::map<std::int64_t, std::vector<float>> csv_rows(const run::TrainSettings& settings) {
  std::ifstream file(settings.out + "/errors.csv");
  std::map<std::int64_t, std::vector<float>> rows;
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    std::istringstream cells(line + ",");
    std::string cell;
    std::getline(cells, cell, ',');
    std::vector<float>& row = rows[std::stoll(cell)];
    while (std::getline(cells, cell, ',')) {
      row.push_back(cell.empty() ? std::nanf("") : static_cast<float>(std::stod(cell)));
    }
  }
  return rows;
}

bool are_same(const std::map<std::int64_t, std::vector<float>>& a,
              const std::map<std::int64_t, std::vector<float>>& b) {
  const auto equal = [](float x, float y) { return x == y || (std::isnan(x) && std::isnan(y)); };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](const auto& x, const auto& y) {
    return x.first == y.first && std::equal(x.second.begin(), x.second.end(), y.second.begin(), y.second.end(), equal);
  });
}

/// First step after whose decision each unit is in standing recovery.
std::map<std::string, std::int64_t> standing_of(const run::TrainSettings& settings) {
  std::map<std::string, std::int64_t> standing;
  for (const io::JournalStepEntry& entry : io::read_journal(settings.out + "/journal.jsonl").steps) {
    for (const io::JournalEvent& event : entry.events) {
      if (event.event == io::JournalEventKind::standing) standing.emplace(event.unit, event.step);
    }
  }
  return standing;
}

/// The steps in which the forward GEMM of a unit was measured, by errors.csv.
std::set<std::int64_t> measured_steps(const run::TrainSettings& settings, const std::string& unit) {
  std::ifstream file(settings.out + "/errors.csv");
  std::string line;
  std::getline(file, line);
  std::istringstream header(line);
  std::size_t column = 0;
  for (std::string name; std::getline(header, name, ',') && name != unit + "/forward";) ++column;
  std::set<std::int64_t> steps;
  while (std::getline(file, line)) {
    std::istringstream cells(line + ",");
    std::string cell;
    std::getline(cells, cell, ',');
    const std::int64_t step = std::stoll(cell);
    for (std::size_t place = 0; place < column; ++place) std::getline(cells, cell, ',');
    if (!cell.empty()) steps.insert(step);
  }
  return steps;
}

TEST(TrainerStanding, TheCoarsestLayersStayInRecoveryAndAreMeasuredAllTheSame) {
  const SmallRuns runs;
  const run::TrainSettings settings = standing_settings(runs, "standing");
  const FinishedRun done = finish(settings);
  const std::map<std::string, std::int64_t> standing = standing_of(settings);
  ASSERT_EQ(standing.size(), 4u);
  const std::vector<Unit> units = io::read_journal(settings.out + "/journal.jsonl").header->units;
  for (const auto& [name, first] : standing) {
    EXPECT_TRUE(name.ends_with(".down")) << name;
    const auto unit = std::find_if(units.begin(), units.end(), [&](const Unit& one) { return one.name == name; });
    const auto index = static_cast<UnitIndex>(unit - units.begin());
    const std::set<std::int64_t> measured = measured_steps(settings, name);
    for (std::int64_t step = 1; step <= settings.steps; ++step) {
      const std::vector<UnitIndex>& high = done.high[static_cast<std::size_t>(step - 1)];
      const bool is_high = std::binary_search(high.begin(), high.end(), index);
      // Before, every layer is on its low path, which the patrol measures in every step.
      EXPECT_EQ(is_high, step > first) << name << " " << step;
      EXPECT_EQ(measured.contains(step), !is_high || (step + index) % kReviewSteps == 0) << name << " " << step;
    }
  }
}

TEST(TrainerStanding, IsItsOwnShareOfHighPrecision) {
  const SmallRuns runs;
  run::TrainSettings settings = standing_settings(runs, "share");
  for (const int lag : {0, 1}) {
    settings.out = runs.file("share" + std::to_string(lag));
    settings.options.lag = lag;
    settings.steps = 100;
    const FinishedRun done = finish(settings);
    const std::map<std::string, std::int64_t> standing = standing_of(settings);
    ASSERT_EQ(standing.size(), 4u);
    std::uint64_t unit_steps = 0;
    for (const auto& [name, first] : standing) {
      unit_steps += static_cast<std::uint64_t>(done.outcome.last_step - first - lag);
    }
    EXPECT_EQ(done.outcome.control.high.standing, unit_steps) << lag;
    EXPECT_EQ(done.outcome.control.high.recovered, unit_steps) << "nothing acute; lag " << lag;
    EXPECT_EQ(run::high_shares(done.recorder.lines, done.recorder.start.info.units),
              done.outcome.control.high.shares());
  }
}

TEST(TrainerStanding, ErrorsAreKeptAsTheyWereMeasured) {
  const SmallRuns runs;
  run::TrainSettings settings = standing_settings(runs, "norms");
  settings.options.selector = Selector::norms;  // no step is run again
  finish(settings);
  const std::map<std::int64_t, std::vector<float>> rows = error_rows(settings);
  EXPECT_EQ(rows.size(), static_cast<std::size_t>(settings.steps)) << "some layer is measured in every step";
  EXPECT_TRUE(are_same(rows, csv_rows(settings)));
  settings.out = runs.file("none");
  settings.steps = 3;
  settings.signals_every = 0;
  finish(settings);
  EXPECT_FALSE(std::filesystem::exists(settings.out + "/errors.bin"));
  EXPECT_FALSE(std::filesystem::exists(settings.out + "/signals.bin"));
  settings.out = runs.file("unmeasured");
  settings.signals_every = 1;
  settings.errors = false;
  settings.options.coarse_error = 0;
  finish(settings);
  EXPECT_FALSE(std::filesystem::exists(settings.out + "/errors.bin")) << "nobody asks for errors";
  EXPECT_TRUE(std::filesystem::exists(settings.out + "/signals.bin"));
}

TEST(TrainerStanding, GoesOnBitForBit) {
  const SmallRuns runs;
  const run::TrainSettings settings = standing_settings(runs, "whole");
  const FinishedRun whole = finish(settings);
  for (const std::int64_t stop : {39, 40, 47}) {
    run::TrainSettings parts = settings;
    parts.out = runs.file("parts" + std::to_string(stop));
    Recorder recorder;
    recorder.stop_after = stop;
    finish(parts, std::move(recorder));
    parts.resume = true;
    EXPECT_TRUE(same_weights(finish(parts).weights, whole.weights)) << stop;
    EXPECT_EQ(decisions_of(parts.out + "/journal.jsonl"), decisions_of(settings.out + "/journal.jsonl")) << stop;
    EXPECT_EQ(standing_of(parts), standing_of(settings)) << stop;
    EXPECT_TRUE(are_same(error_rows(parts), error_rows(settings))) << stop;
  }
}

TEST(TrainerStanding, NormsAloneNeedAPatrolForIt) {
  const SmallRuns runs;
  for (const double patrol : {0.0, 1.0}) {
    run::TrainSettings settings = standing_settings(runs, "norms" + std::to_string(patrol));
    settings.options.selector = Selector::norms;
    settings.patrol = patrol;
    settings.errors = false;
    finish(settings);
    EXPECT_EQ(standing_of(settings).empty(), patrol == 0);
  }
  run::TrainSettings off = standing_settings(runs, "off");
  off.options.selector = Selector::norms;
  off.options.coarse_error = 0;
  finish(off);
  EXPECT_TRUE(standing_of(off).empty());
  EXPECT_FALSE(measured_steps(off, "layers.0.down").empty()) << "for the log";
}

}  // namespace
}  // namespace gnmr::train
