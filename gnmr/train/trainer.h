// SPDX-License-Identifier: Apache-2.0
// Trains a model in low precision with the controller on it.
//
// One step: forward and backward, each unit on the path that the supervisor chose; one pass over the gradients gives
// every norm and the clip coefficient; the supervisor says whether the update is made, held, or made by another run of
// the step (docs/algorithm.md), and which units are in recovery next; the update. An update that is not finite is never
// applied, whatever the controller. With lag 1 a gate stands before the update, and the step is reported while the next
// one runs.
//
// Goals: bit-repeatable runs on the CPU; a run that was killed at any moment goes on bit for bit from its last
// checkpoint; every rank decides alike. Non-goals: printing, sharded parameters, other optimizers.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

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

namespace gnmr::train {

/// Names of entries in a checkpoint, beside those of an experiment.
inline constexpr const char* kModeKey = "mode";
inline constexpr const char* kSkippedKey = "skipped_updates";
inline constexpr const char* kHeldKey = "held_passes";
inline constexpr const char* kModelKey = "model_config";
inline constexpr const char* kRecipeKey = "recipe";
inline constexpr const char* kTokensKey = "tokens_a_step";

/// One run. Rank 0 writes files; the others write none.
class Trainer {
 public:
  /// Opens everything; an `Error` says what is wrong. With more than one rank all of them construct it.
  Trainer(const run::TrainSettings& settings, run::TrainObserver& observer, nn::Collective& ranks,
          const MakeExperiment& make_experiment = {});
  ~Trainer();

  /// Trains to the last step or until the observer wants to stop.
  run::TrainOutcome run();

  /// The high units of each step that this process trained, for comparisons between ranks.
  const std::vector<std::vector<UnitIndex>>& recovered_by_step() const { return recovered_by_step_; }

  /// The model.
  models::LanguageModel& model() { return *model_; }

 private:
  struct Step {  // that has begun
    StepPlan plan = {};
    bool failed = false;  // it was to be a trial, for which there was no memory
    BatchNumbers numbers = {};
    std::int64_t recovered = 0;
    std::int64_t high = 0;
    double seconds = 0;        // of all of it, but for
    double aside_seconds = 0;  // what only an experiment measures
  };
  struct Restored {                 // what the rest of the start needs of a checkpoint
    std::string controller = {};    // bytes of a state file; empty: there is none
    std::optional<Mode> mode = {};  // that the kill switch had asked for
  };

  // The start (trainer_setup.cpp).
  void open_model();
  void open_units();
  void open_folder();
  Restored resume();
  std::optional<Mode> restore_extra(const std::map<std::string, std::string>& extra);
  void start(const Restored& restored);
  void start_supervisor(const Restored& restored);
  run::SupervisorSettings supervision() const;
  BatchSettings batch_settings() const;
  run::RunInfo run_info() const;
  std::unique_ptr<StepGate> make_gate(bool on_device);
  std::string control_text() const;
  void announce();

  // The loop.
  void follow_kill_switch();
  void note_new_mode(Mode before);
  void train_step(std::int64_t step);
  void begin(std::int64_t step, Step& now);
  void run_batch(Step& now);
  void find_update(Step& now);
  void report_late_step();
  const Outcome& report(const Step& step);
  void count(const Step& step, const Outcome& outcome);
  std::string memory_failure(PassKind pass, const std::function<void()>& attempt);
  void warn(const std::string& text);
  std::vector<double> log_errors(const Step& step);
  void log_evidence(const Step& step);
  void log_step(const Step& step);
  void evaluate(std::int64_t step);
  void save_checkpoint(std::int64_t step, bool is_last);
  run::TrainOutcome finish();

  std::map<std::string, std::string> arithmetic() const;
  Options options_in_force() const;
  bool has_low_path() const { return settings_.recipe != "none"; }
  bool uses_errors() const;
  bool switches_units() const;
  double rate_of(std::int64_t step) const;
  bool is_due(std::int64_t every, std::int64_t step) const {
    return step == settings_.steps || (every > 0 && step % every == 0);
  }

  run::TrainSettings settings_;
  run::TrainObserver& observer_;
  nn::Collective& ranks_;
  std::optional<Data> data_;
  std::shared_ptr<models::LanguageModel> model_;
  std::optional<AdamW> optimizer_;
  std::optional<nn::RecoverableUnits> units_;
  std::unique_ptr<Experiment> experiment_;  // null: there is none
  std::optional<BatchRunner> runner_;
  std::optional<RunWriter> writer_;
  std::optional<KillSwitch> kill_switch_;
  std::optional<run::Supervisor> supervisor_;
  std::unique_ptr<StepGate> gate_;  // null: the host waits for each step's numbers before its update
  std::optional<Step> late_;        // with a gate: the step that ran last, until it is reported
  HeldBatches held_;
  std::int64_t next_step_ = 1;
  run::TrainOutcome outcome_;
  std::vector<std::vector<UnitIndex>> recovered_by_step_;
};

}  // namespace gnmr::train
