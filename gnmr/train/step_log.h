// SPDX-License-Identifier: Apache-2.0
// What is written and counted about the steps of a run: norms, errors and evidence, the line of a step, the sums of the
// run's outcome.
//
// Goals: it listens to what is reported; the loop calls it when a step is over. Non-goals: the files (run_writer.h);
// journal and signals, which the supervisor writes.
#pragma once

#include <cstdint>

#include "gnmr/run/engine.h"
#include "gnmr/run/supervisor.h"
#include "gnmr/train/batch_numbers.h"
#include "gnmr/train/batch_runner.h"
#include "gnmr/train/run_writer.h"

namespace gnmr::train {

/// A step that has begun.
struct Step {
  StepPlan plan = {};
  formats::Refresh refresh = {};  // of delayed scales, at its end
  bool failed = false;            // it was to be a trial, for which there was no memory
  BatchNumbers numbers = {};
  double learning_rate = 0;
  std::int64_t recovered = 0;
  std::int64_t standing = 0;  // of these
  std::int64_t high = 0;
  double high_cost = 0;      // shares of the multiply-adds in high precision, summed over its passes
  double seconds = 0;        // of all of it, but for
  double aside_seconds = 0;  // what only an experiment measures

  /// Whether its last run was a trial or a replay.
  bool is_rerun() const { return plan.pass != PassKind::step && !failed; }
};

/// The log of one run. It belongs to the thread that trains.
class StepLog : public run::OutcomeListener {
 public:
  /// All of it must outlive the log; sums are added to `outcome`.
  StepLog(RunWriter& writer, run::TrainObserver& observer, const run::Supervisor& supervisor, BatchRunner& runner,
          run::TrainOutcome& outcome);

  void reported(const run::ReportedRun& run) override;

  /// The step is over.
  void finished(const Step& step);

 private:
  void count_rerun(const run::ReportedRun& run);
  void write_evidence(const Step& step);

  RunWriter& writer_;
  run::TrainObserver& observer_;
  const run::Supervisor& supervisor_;
  BatchRunner& runner_;
  run::TrainOutcome& outcome_;
  std::int64_t rerun_high_ = 0;  // of the step that is not finished
};

}  // namespace gnmr::train
