// SPDX-License-Identifier: Apache-2.0
// What a run is made of.
//
// Goals: whoever builds, resumes, saves or drives a run names its parts alike. Non-goals: building it (run_builder.h),
// the loop (trainer.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "gnmr/models/language_model.h"
#include "gnmr/run/engine.h"
#include "gnmr/run/supervisor.h"
#include "gnmr/torch/collective.h"
#include "gnmr/torch/units.h"
#include "gnmr/train/batch_runner.h"
#include "gnmr/train/data.h"
#include "gnmr/train/experiment.h"
#include "gnmr/train/held_batches.h"
#include "gnmr/train/kill_switch.h"
#include "gnmr/train/optimizer.h"
#include "gnmr/train/run_writer.h"
#include "gnmr/train/step_gate.h"
#include "gnmr/train/step_log.h"

namespace gnmr::train {

/// The parts of one run. Each may refer to those before it, so they stay where they are; all that may be empty but the
/// experiment and the gate is there once the run is built.
struct RunParts {
  RunParts(const run::TrainSettings& given, run::TrainObserver& watcher, nn::Collective& together)
      : settings(given), observer(watcher), ranks(together) {}
  RunParts(const RunParts&) = delete;
  RunParts& operator=(const RunParts&) = delete;

  bool has_low_path() const { return settings.recipe != "none"; }
  bool has_controller() const { return settings.controller != "none"; }

  /// Tokens of a step, of all ranks together.
  std::int64_t step_tokens() const { return settings.batch * settings.sequence * settings.accumulate * ranks.size(); }

  /// Whether anybody's choice of units is carried out.
  bool switches_units() const {
    return settings.controller == "gnmr" || !settings.random_units.empty() ||
           (experiment != nullptr && experiment->chooses_units());
  }

  /// The batch of a step that is not begun: planned already, one that waits, or a fresh one.
  std::int64_t next_batch(std::int64_t step) const {
    const PlanState& plan = supervisor->controller().plan_state();
    if (!plan.undecided.empty() && !plan.undecided.back().begun) return plan.undecided.back().batch;
    if (!plan.waiting.empty()) return plan.waiting.front().batch;
    return plan.next_batch == 0 ? step : plan.next_batch;
  }

  run::TrainSettings settings;
  run::TrainObserver& observer;
  nn::Collective& ranks;
  std::unique_ptr<BatchSource> data;
  std::shared_ptr<models::LanguageModel> model;
  std::optional<AdamW> optimizer;
  std::optional<nn::RecoverableUnits> units;
  std::unique_ptr<Experiment> experiment;  // null: there is none
  std::optional<BatchRunner> runner;
  std::optional<RunWriter> writer;
  std::optional<run::Supervisor> supervisor;
  std::unique_ptr<StepGate> gate;  // null: the host waits for each step's numbers before its update
  std::optional<KillSwitch> kill_switch;
  std::optional<StepLog> log;
  HeldBatches held;
  std::int64_t next_step = 1;
  run::TrainOutcome outcome;  // so far
};

}  // namespace gnmr::train
