// SPDX-License-Identifier: Apache-2.0
// A suite: arms times seeds, their settings, and the folder that holds all of it.
//
//   FOLDER/suite.json             title, notes, seeds, arms with their exact settings
//   FOLDER/recipe.json            where the regime has a recipe of its own
//   FOLDER/cells/ARM-seedN.json   one per finished cell (gnmr/lab/cell.h)
//   FOLDER/runs/ARM-seedN/        the run's folder; runs/ARM-seedN.log is what it printed
//   FOLDER/summary.json           the table (gnmr/lab/summary.h)
//
// Goals: a suite that was begun goes on with the same settings or not at all; every file is there whole or not at all.
// Non-goals: running cells (gnmr/lab/cell_runner.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gnmr/lab/cell.h"
#include "gnmr/lab/regimes.h"
#include "gnmr/run/train_settings.h"

namespace gnmr::lab {

/// What a suite of `gnmr lab faults` injects where nothing is to be wrong.
inline constexpr const char* kNoFault = "none";

/// What a suite is asked for.
struct SuiteRequest {
  std::string folder;
  std::string title;
  std::vector<std::string> notes = {};
  std::vector<std::int64_t> seeds = {0};
  std::vector<Arm> arms = {};
  std::vector<std::string> texts = {};         // of all cells; an arm's come behind them
  std::vector<std::string> option_texts = {};  // frozen options, before `texts`; of these an arm with a preset of its
                                               // own takes max_o alone
  std::string fault = {};        // of `gnmr lab faults`: what is injected; each seed has faults of its own
  std::string recipe_json = {};  // written into the folder and used, where it is not empty
  std::int64_t threads = 0;      // of each cell; 0: what the suite has, or 1
  bool resume = false;
};

/// An arm with what its cells have in common; `seed`, `out` and what its rule needs are set cell by cell.
struct SuiteArm {
  Arm arm;
  run::TrainSettings settings;
};

/// One run to be done.
struct PlannedCell {
  std::string name;  // ARM-seedN
  std::size_t arm = 0;
  std::int64_t seed = 0;
  std::optional<std::size_t> needs = {};  // the cell that must be there first
};

/// A suite that is on the disk.
class Suite {
 public:
  /// Makes the folder and suite.json; where one is there and `resume` is asked for, goes on with it: arms and seeds
  /// that are new are added. An `Error` where a suite is there and is not to be resumed, or has other settings.
  static Suite open(const SuiteRequest& request);

  /// The suite in a folder as it is, to read its results; an `Error` where there is none.
  static Suite load(const std::string& folder);

  const std::string& folder() const { return folder_; }
  const std::string& title() const { return title_; }
  const std::vector<std::string>& notes() const { return notes_; }
  const std::vector<SuiteArm>& arms() const { return arms_; }
  const std::vector<std::int64_t>& seeds() const { return seeds_; }

  /// What `gnmr lab faults` injects, `none` for a healthy run; empty: another kind of suite.
  const std::string& fault() const { return fault_; }

  /// All cells: those of the first seed first, and each behind the one that it needs.
  const std::vector<PlannedCell>& cells() const { return cells_; }

  std::string run_folder(const PlannedCell& cell) const { return folder_ + "/runs/" + cell.name; }
  std::string log_path(const PlannedCell& cell) const { return run_folder(cell) + ".log"; }
  std::string cell_path(const PlannedCell& cell) const { return folder_ + "/cells/" + cell.name + ".json"; }

  /// The settings of one cell. `needed` is the result of the cell that it needs. `note` is set where something should
  /// be known of the result.
  run::TrainSettings settings_of(const PlannedCell& cell, const CellResult* needed, std::string& note) const;

  /// The result of a cell that was finished before; none where it was not.
  std::optional<CellResult> finished(const PlannedCell& cell) const;

  /// Measures the run of a cell and keeps the result; none where the run has not finished.
  std::optional<CellResult> measure(const PlannedCell& cell, const std::string& note) const;

 private:
  void plan();
  void save() const;

  std::string folder_;
  std::string title_;
  std::string fault_;
  std::vector<std::string> notes_;
  std::vector<std::int64_t> seeds_;
  std::vector<SuiteArm> arms_;
  std::vector<PlannedCell> cells_;
};

}  // namespace gnmr::lab
