// SPDX-License-Identifier: Apache-2.0
// What is passed on of every reported run: to the journal, the signals file, the self-audit, the log of a loop.
//
// Goals: one small interface; who listens changes no decision. Non-goals: deciding.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "gnmr/core/controller.h"

namespace gnmr::run {

/// What a step that ran again came to, for the journal.
struct RerunContext {
  std::optional<double> loss_before = {};  // of the alarmed run; none where there was no other
  double loss = 0;
  std::optional<double> norm_before = {};  // of all gradients
  double norm = 0;
  std::optional<double> distance = {};  // of the two gradients at least, relative
  double seconds = 0;
  bool applied = true;
  std::optional<std::int64_t> rank = {};  // where the two differ most
};

/// What only the loop knows of a run of a step, for those who listen.
struct RunNotes {
  std::optional<double> loss = {};
  std::optional<double> clip_coefficient = {};
  std::optional<RerunContext> rerun = {};  // of a trial or a replay
  std::span<const double> errors = {};     // as they were measured; the report has those that a decision may go by
  std::int64_t recovered = 0;              // units in recovery in this step
  std::int64_t standing = 0;               // of these, in standing recovery
};

/// A run of a step that was reported. Views are valid during the call.
struct ReportedRun {
  const Controller& controller;
  const StepReport& report;
  const Outcome& outcome;
  const RunNotes& notes;
  PlannedStep plan = {};          // `in_force`: its decisions are carried out
  PassKind ran = PassKind::step;  // as planned, but for a trial or a replay that failed
  bool is_first = true;           // false: with lag 0, the rerun of a step
  bool is_decided = false;        // the outcome has the decision of the step, and no listener had it before
  bool norms_dropped = false;     // since it was held for a trial
};

/// Receives what happened. Called by the thread that reports.
class OutcomeListener {
 public:
  virtual ~OutcomeListener() = default;

  /// A step has begun, or its rerun.
  virtual void begun(const Controller& /*controller*/) {}

  /// A run was reported.
  virtual void reported(const ReportedRun& run) = 0;
};

}  // namespace gnmr::run
