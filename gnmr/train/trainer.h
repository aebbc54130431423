// SPDX-License-Identifier: Apache-2.0
// Trains a model in low precision with the controller on it.
//
// One step: forward and backward, each unit on the path that the supervisor said; one pass over the gradients gives
// every norm and the clip coefficient; the controller decides for the next step; the update. An update that is not
// finite is never applied, whatever the controller.
//
// Goals: bit-repeatable runs on the CPU; a run that was killed at any moment goes on bit for bit from its last
// checkpoint; every rank decides alike. Non-goals: printing, sharded parameters, other optimizers.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gnmr/models/llama.h"
#include "gnmr/run/control_file.h"
#include "gnmr/run/engine.h"
#include "gnmr/run/evidence.h"
#include "gnmr/run/fault_plan.h"
#include "gnmr/run/supervisor.h"
#include "gnmr/torch/collective.h"
#include "gnmr/torch/units.h"
#include "gnmr/train/checkpoint.h"
#include "gnmr/train/data.h"
#include "gnmr/train/optimizer.h"
#include "gnmr/train/schedule.h"

namespace gnmr::train {

/// One run. Rank 0 writes files; the others write none.
class Trainer {
 public:
  /// Opens everything; an `Error` says what is wrong. With more than one rank all of them construct it.
  Trainer(const run::TrainSettings& settings, run::TrainObserver& observer, nn::Collective& collective);
  ~Trainer();

  /// Trains to the last step or until the observer wants to stop.
  run::TrainOutcome run();

  /// The units in recovery in each step that this process trained, for comparisons between ranks.
  const std::vector<std::vector<UnitIndex>>& recovered_by_step() const { return recovered_by_step_; }

  /// The model.
  models::LlamaImpl& model() { return *model_; }

 private:
  struct StepResult {
    double loss = 0;
    double grad_norm = 0;
    double clip = 1;
    bool applied = true;
  };

  struct GradientSquares {
    std::vector<double> parameters;
    std::vector<std::uint8_t> has_gradient;  // one a parameter
    std::vector<double> products;            // one a unit
  };

  void open_folder();
  void open_files();
  void describe();
  void make_model();
  void make_units();
  void resume();
  std::map<std::string, std::string> arithmetic() const;
  void announce();
  StepResult train_step(std::int64_t step);
  GradientSquares measure_gradients(StepResult& result);
  void judge(std::int64_t step, const StepResult& result, const GradientSquares& measured);
  double run_micro_batches(std::int64_t step);
  void reduce_over_ranks(std::vector<double>& product_squares, double& loss);
  void follow_mode();
  void keep_mode(io::JournalModeKind mode);
  std::vector<nn::LayerFault> faults_of(std::int64_t step) const;
  void write_evidence(std::int64_t step);
  void evaluate(std::int64_t step);
  double evaluation_loss(bool all_high);
  void save_checkpoint(std::int64_t step);
  bool writes_files() const { return collective_.rank() == 0; }
  bool is_due(std::int64_t every, std::int64_t step) const {
    return step == settings_.steps || (every > 0 && step % every == 0);
  }

  run::TrainSettings settings_;
  run::TrainObserver& observer_;
  nn::Collective& collective_;
  run::RunFolder folder_;
  std::optional<run::RunLock> lock_;
  models::Llama model_{nullptr};
  std::optional<Data> data_;
  std::optional<nn::RecoverableUnits> units_;
  std::optional<AdamW> optimizer_;
  std::optional<run::Supervisor> supervisor_;
  std::optional<run::MetricsWriter> metrics_;
  std::optional<run::ControlFile> control_;
  std::optional<run::EvidenceWriter> evidence_;
  std::vector<run::PlannedFault> faults_;
  std::vector<std::string> layer_names_;
  std::string controller_state_;                                 // of the checkpoint that the run goes on from
  io::JournalModeKind first_mode_ = io::JournalModeKind::armed;  // as the settings ask for it
  std::optional<io::JournalModeKind> restored_mode_;  // as the kill switch asked for it before the run stopped
  std::shared_ptr<const nn::Recipe> recipe_;          // null: everything is high
  at::Device device_{at::kCPU};
  Schedule schedule_;
  run::RunInfo info_;
  std::int64_t next_step_ = 1;
  run::TrainOutcome outcome_;
  std::vector<std::vector<UnitIndex>> recovered_by_step_;
};

}  // namespace gnmr::train
