// SPDX-License-Identifier: Apache-2.0
// Trains a model in low precision with the controller on it.
//
// One step: forward and backward, each unit on the path that the supervisor said; one pass over the gradients gives
// every norm and the clip coefficient; the supervisor says whether the update is made, held, or made by another run of
// the step (docs/algorithm.md), and who is in recovery next; the update. An update that is not finite is never applied,
// whatever the controller. With lag 1 a gate stands before the update, and the step is settled while the next one runs.
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

#include "gnmr/models/llama.h"
#include "gnmr/run/control_file.h"
#include "gnmr/run/engine.h"
#include "gnmr/run/evidence.h"
#include "gnmr/run/harm.h"
#include "gnmr/run/supervisor.h"
#include "gnmr/torch/collective.h"
#include "gnmr/torch/gradient_squares.h"
#include "gnmr/torch/units.h"
#include "gnmr/train/checkpoint.h"
#include "gnmr/train/data.h"
#include "gnmr/train/laboratory.h"
#include "gnmr/train/optimizer.h"
#include "gnmr/train/pass_numbers.h"
#include "gnmr/train/schedule.h"
#include "gnmr/train/step_gate.h"
#include "gnmr/train/trace_file.h"

namespace gnmr::train {

/// How far apart two gradients are at least, by the squared norms of their parts, relative to the second.
double distance_between(std::span<const double> first_squares, std::span<const double> second_squares);

/// One run. Rank 0 writes files; the others write none.
class Trainer {
 public:
  /// Opens everything; an `Error` says what is wrong. With more than one rank all of them construct it. Faults, rivals
  /// and the like need a laboratory.
  Trainer(const run::TrainSettings& settings, run::TrainObserver& observer, nn::Collective& collective,
          const MakeLaboratory& make_laboratory = {});
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
    double seconds = 0;  // of the whole step; what only an experiment measures is not counted
    std::int64_t batch = 0;
  };

  struct UnsettledStep {  // it has run; its numbers have not been read
    StepPlan plan;
    bool failed = false;  // it was to be a trial, for which there was no memory
    PassNumbers numbers = {};
    std::int64_t recovered = 0;
    std::int64_t high = 0;
    double pass_seconds = 0;  // of these, the pass
    double seconds = 0;
  };

  struct HeldPass {  // of a batch that is to come again
    double loss = 0;
    std::vector<double> squares = {};     // of the parameters' gradients
    std::optional<double> own_norm = {};  // of this rank's; not known after a resume
  };

  void open_folder();
  void notice_lost_folder();
  void warn(const std::string& text);
  bool any_rank(bool here);
  void open_files();
  void make_gate();
  void describe();
  void make_model();
  void make_units();
  void make_experiment(const MakeLaboratory& make_laboratory);
  std::vector<UnitIndex> oracle_units(std::int64_t step) const;
  void open_traces();
  void resume();
  std::map<std::string, std::string> arithmetic() const;
  void announce();
  StepResult train_step(std::int64_t step);
  PassNumbers take_pass(std::int64_t batch);
  PassResult run_pass(std::int64_t batch) { return read(take_pass(batch)); }
  at::Tensor run_micro_batches(std::int64_t batch);
  PassResult read_pass(PassNumbers numbers);
  void reduce_over_ranks(PassNumbers& numbers);
  void measure_gradients(PassResult& pass);
  void find_gradients(PassResult& pass) const;
  void look_at_measurements(PassResult& pass);
  void note_graphs();
  at::Tensor on_device(const at::Tensor& tensor) const;
  void look_at_units(PassResult& pass);
  StepResult result_of(const PassResult& pass) const;
  void drop_gradients();
  void scale_gradients(std::span<const double> coefficients, PassResult& pass);
  StepResult judge(const StepPlan& plan, PassResult& pass);
  std::optional<StepResult> try_trial(const StepPlan& plan, PassResult& pass);
  StepResult run_again(const PassResult& alarmed);
  static std::string memory_failure(const std::function<void()>& attempt);
  void tell_failed_trial(std::int64_t step, const std::string& failure);
  StepResult follow_rule(std::int64_t step, PassResult& pass);
  std::vector<double> measured_errors(std::int64_t step, const PassResult& pass);
  std::optional<std::int64_t> strangest_rank(double alarmed_norm, double rerun_norm);
  double measure_harm(std::int64_t batch);

  bool is_late() const { return gate_ != nullptr; }
  void train_late(std::int64_t step);
  PassNumbers take_planned_pass(UnsettledStep& step);
  void settle_late();
  void catch_up();
  run::RerunContext rerun_context(const UnsettledStep& step, const PassResult& pass);
  void count_late(const UnsettledStep& step, const PassResult& pass, const Outcome& outcome, bool comes_again);
  std::string held_text() const;
  void restore_held(const std::string& text);
  void restore_extra(const std::map<std::string, std::string>& extra);

  void tell_errors(std::int64_t step, std::span<const double> errors);
  std::string control_text() const;
  Options options_in_force() const;
  bool uses_errors() const;
  void follow_mode();
  void keep_mode(Mode mode);
  void write_evidence(std::int64_t step, const std::function<nn::CastEvidence(UnitIndex)>& seen);
  void tell_step(run::TrainLine line, std::int64_t batch);
  void note_new_mode(Mode before);
  void evaluate(std::int64_t step);
  double evaluation_loss(bool all_high);
  void save_checkpoint(std::int64_t step, bool is_last);
  bool writes_files() const { return collective_.rank() == 0; }
  bool is_due(std::int64_t every, std::int64_t step) const {
    return step == settings_.steps || (every > 0 && step % every == 0);
  }

  run::TrainSettings settings_;
  run::TrainObserver& observer_;
  nn::Collective& collective_;
  nn::GradientSquares gradient_squares_;
  run::RunFolder folder_;
  std::vector<run::RunLock> locks_;  // the last one is that of the folder as it is now
  models::Llama model_{nullptr};
  std::optional<Data> data_;
  std::optional<nn::RecoverableUnits> units_;
  std::optional<AdamW> optimizer_;
  std::optional<run::Supervisor> supervisor_;
  std::optional<run::MetricsWriter> metrics_;
  std::optional<run::ControlFile> control_;
  std::optional<run::EvidenceWriter> evidence_;
  std::optional<run::HarmWriter> harm_;
  std::optional<TraceFile> errors_;
  std::optional<TraceFile> norms_;
  std::unique_ptr<Laboratory> laboratory_;  // null: there is none
  std::vector<std::string> layer_names_;
  std::string controller_state_;                                 // of the checkpoint that the run goes on from
  Mode first_mode_ = Mode::armed;  // as the settings ask for it
  std::optional<Mode> restored_mode_;  // as the kill switch asked for it before the run stopped
  std::shared_ptr<const nn::Recipe> recipe_;          // null: everything is high
  at::Device device_{at::kCPU};
  Schedule schedule_;
  run::RunInfo info_;
  std::string lost_folder_;  // what became of the folder in mid-run, in words; empty: it is there
  std::string lost_why_;     // why it could not be made again
  std::int64_t next_step_ = 1;
  std::string told_graph_failure_;
  bool has_device_gate_ = false;    // then the numbers of a pass are read from the device when it is settled
  std::unique_ptr<StepGate> gate_;  // null: the host waits for each step's numbers before its update
  std::optional<UnsettledStep> unsettled_;
  std::map<std::int64_t, HeldPass> held_;  // by batch
  run::TrainOutcome outcome_;
  std::vector<std::vector<UnitIndex>> recovered_by_step_;
};

}  // namespace gnmr::train
