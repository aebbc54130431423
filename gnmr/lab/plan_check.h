// SPDX-License-Identifier: Apache-2.0
// Whether a plan is worth what it says: the run's training again with all units high, all low, and the plan's high.
//
// Goals: a plan is judged by runs, paired by seed, and its prediction stands beside what came out. Non-goals: running
// the suite (gnmr/lab/cell_runner.h), making the plan (gnmr/lab/high_plan.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gnmr/lab/gap.h"
#include "gnmr/lab/high_plan.h"
#include "gnmr/lab/summary.h"
#include "gnmr/run/train_settings.h"

namespace gnmr::lab {

/// What the cells of a check have in common: the settings of the run, as texts, but for those that every suite sets.
std::vector<std::string> check_texts(const run::TrainSettings& settings);

/// The arms `high`, `low` and `plan`; units that the run keeps high are high in `low` and in `plan`.
std::vector<Arm> check_arms(const HighPlan& plan, const run::TrainSettings& settings);

/// What the runs came to; all of it paired by seed.
struct PlanCheck {
  std::size_t seeds = 0;     // of which all three runs ended with a finite loss
  Estimate gap = {};         // loss of low - high
  Estimate above_high = {};  // loss of plan - high
  Ratio closed = {};         // share of the gap; a count of 0 where that is not above its noise
  double units_high = 0;     // measured: mean share of the units on the high path
};

/// The check from the table's cells.
PlanCheck check_plan(const Comparison& comparison);

/// What was predicted beside what was measured; `check_json` is one JSON object.
std::string check_text(const HighPlan& plan, const PlanCheck& check);
std::string check_json(const HighPlan& plan, const PlanCheck& check);

}  // namespace gnmr::lab
