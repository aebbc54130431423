// SPDX-License-Identifier: Apache-2.0
// Trains a model in low precision with the controller on it: the loop.
//
// One step: forward and backward, each unit on the path that the supervisor chose; one pass over the gradients gives
// every norm and the clip coefficient; the supervisor says whether the update is made, held, or made by another run of
// the step (docs/algorithm.md), and which units are in recovery next; the update. An update that is not finite is never
// applied, whatever the controller. With lag 1 a gate stands before the update, and the step is reported while the next
// one runs; a held batch comes again, so a run of N steps goes on until each of N batches has run and is not held.
//
// Goals: bit-repeatable runs on the CPU; a run that was killed at any moment goes on bit for bit from its last
// checkpoint; every rank decides alike. Non-goals: how a run begins (run_builder.h), printing, sharded parameters,
// other optimizers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gnmr/run/engine.h"
#include "gnmr/train/run_builder.h"
#include "gnmr/train/run_parts.h"
#include "gnmr/train/schedule.h"

namespace gnmr::train {

/// One run. Rank 0 writes files; the others write none.
class Trainer {
 public:
  /// Opens everything; an `Error` says what is wrong. With more than one rank all of them construct it.
  Trainer(const run::TrainSettings& settings, run::TrainObserver& observer, nn::Collective& ranks,
          const RunMakers& makers);

  /// Trains until all batches are done, or the observer wants to stop.
  run::TrainOutcome run();

  /// The high units of each step that this process trained, for comparisons between ranks.
  const std::vector<std::vector<UnitIndex>>& recovered_by_step() const { return recovered_by_step_; }

  /// The model.
  models::LanguageModel& model() { return *parts_.model; }

 private:
  bool is_over();
  void follow_kill_switch();
  void leave_out(std::int64_t step);
  void take_step(std::int64_t number);
  void run_batch(Step& now);
  Action report(const Step& step);
  void make_update(Step& now);
  void report_late_step();
  void warn(const std::string& text);
  void evaluate(std::int64_t step);
  void save_checkpoint(std::int64_t step, bool is_last);
  run::TrainOutcome finish();

  RunParts parts_;
  Schedule schedule_;
  std::optional<Step> late_;  // with a gate: the step that ran last, until it is reported
  std::vector<std::vector<UnitIndex>> recovered_by_step_;
};

}  // namespace gnmr::train
