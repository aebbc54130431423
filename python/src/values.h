// SPDX-License-Identifier: Apache-2.0
// Plans, decisions and outcomes as values that Python may keep: the core's own are views that end with the next step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gnmr/core/step.h"
#include "gnmr/core/types.h"

namespace gnmr::python {

struct PlanValue {
  explicit PlanValue(const StepPlan& from);

  /// With views of this value. Paths, and limits of errors, which no gate of Python has, are left out.
  StepPlan view() const;

  StepPlan plan;  // without views
  std::vector<UnitIndex> measure;
  std::vector<std::uint8_t> gate_flags;  // where the plan may hold the update
};

struct DecisionValue {
  DecisionValue() = default;
  explicit DecisionValue(const Decision& from);

  std::int64_t step = 0;
  bool common = false;
  std::vector<UnitIndex> recovered, admitted, denied, futile, released, standing;
  std::int64_t recovered_cost = 0;
};

struct OutcomeValue {
  explicit OutcomeValue(const Outcome& from);

  std::int64_t step;
  std::optional<std::int64_t> decided_step;
  std::int64_t in_force_from;
  std::string action, rerun, verdict;
  bool alarmed, dismissed, spent, capped;
  std::vector<double> clip;
  std::vector<Finding> findings;
  DecisionValue decision;
};

}  // namespace gnmr::python
