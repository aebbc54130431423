// SPDX-License-Identifier: Apache-2.0
// Runs the cells of a suite, each as a child process, a few at a time.
//
// A cell with a result is not run again; one that was begun goes on from its checkpoint, or from the start where it has
// none. A crash is that cell's result and nobody else's.
//
// Goals: the run's folder is the only interface to a child; stopping loses nothing that a checkpoint can keep.
// Non-goals: printing, tables. All calls come from the thread that calls `run_cells`.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gnmr/lab/cell.h"
#include "gnmr/lab/progress.h"
#include "gnmr/lab/suite.h"

namespace gnmr::lab {

/// How cells are run.
struct RunnerSettings {
  std::vector<std::string> program;           // what a child is started with, before the flags of `gnmr train`
  std::size_t jobs = 1;                       // cells at a time
  std::chrono::milliseconds look_every{100};  // from one look at the children to the next
  std::chrono::seconds stop_time{60};         // that a child has to stop before it is killed
  std::chrono::seconds stall_time{1800};      // without a step, after which a child is given up; 0: for ever
};

/// Where a cell is.
enum class CellState { waiting, running, finished, failed };

/// What is known of a cell.
struct CellStatus {
  CellState state = CellState::waiting;
  bool found = false;                      // finished before this run of the suite
  std::optional<CellResult> result = {};   // where it is finished
  std::string why = {};                    // where it failed
  std::vector<ProgressPoint> points = {};  // of a cell that runs, or has run here
};

/// Progress goes there.
class SuiteObserver {
 public:
  virtual ~SuiteObserver() = default;
  virtual void started(std::size_t cell, bool resumed) = 0;
  virtual void ended(std::size_t cell, const CellStatus& status) = 0;

  /// After each look; all cells in the order of the suite.
  virtual void looked(std::span<const CellStatus> cells) = 0;

  /// How often the user has asked to stop: once ends all cells with a checkpoint, twice at once.
  virtual int stops_wanted() = 0;
};

/// What running a suite came to.
struct SuiteOutcome {
  std::vector<CellStatus> cells;
  bool stopped = false;

  /// How many cells are in a state.
  std::size_t count(CellState state) const;
};

/// Runs all cells that have no result yet.
SuiteOutcome run_cells(const Suite& suite, const RunnerSettings& settings, SuiteObserver& observer);

}  // namespace gnmr::lab
