// SPDX-License-Identifier: Apache-2.0
// A suite as it is shown: curves of all arms, the table, the gap that each arm closes, and each run.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "gnmr/report/curve.h"
#include "gnmr/report/run_view.h"
#include "gnmr/report/suite_files.h"

namespace gnmr::report {

/// One quantity of one arm: a curve a seed, and their mean.
struct ArmCurves {
  std::vector<Curve> seeds;
  Curve mean;
};

/// An arm, as it is shown.
struct ArmView {
  std::string label;
  std::string about;
  ArmCurves train_loss = {}, eval_high = {}, eval_low = {};
  ArmCurves budget_use = {};  // units in recovery, in percent of the budget; empty without a controller
};

/// A quantity with its interval.
struct Interval {
  std::size_t arm = 0;  // index into the arms
  std::string text;
  double value = 0;
  double low = 0;
  double high = 0;
};

/// A row of the table of runs.
struct RunRow {
  std::string arm;
  std::string seed;
  std::string state;
  std::string steps = {};
  std::string train_loss = {}, eval_high = {}, eval_low = {};
  std::string skipped = {}, recoveries = {};
};

/// All that is shown of a suite.
struct SuiteView {
  std::string title;
  std::vector<std::string> notes;
  std::vector<std::string> remarks;
  std::vector<ArmView> arms;
  std::optional<lab::Summary> summary;
  std::string gap_title;
  std::vector<Interval> gaps;
  double first_step = 1;
  double last_step = 1;
  std::vector<RunRow> run_rows;
  std::vector<RunView> runs;   // those that could be read
  std::size_t chosen_run = 0;  // the one to show first
};

/// Reads the runs of a suite one after the other. A run that cannot be read is left out, with a remark.
SuiteView make_suite_view(const SuiteFiles& suite);

}  // namespace gnmr::report
