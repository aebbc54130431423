// SPDX-License-Identifier: Apache-2.0
#include "gnmr/train/trainer.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>

#include "gnmr/core/error.h"
#include "gnmr/io/whole_file.h"
#include "gnmr/torch/cuda_graph.h"

namespace gnmr::train {

Trainer::~Trainer() = default;

/// What the casts did: of units at risk or standing out in every step, of all units when the run is evaluated.
void Trainer::write_evidence(std::int64_t step, const std::function<nn::CastEvidence(UnitIndex)>& seen) {
  if (!evidence_) return;
  const auto write = [&](UnitIndex unit) {
    const nn::CastEvidence cast = seen(unit);
    if (!cast.measured) return;
    evidence_->write({.step = step,
                      .unit = units_->units()[unit].name,
                      .relative_error = cast.relative_error,
                      .saturated = cast.saturated,
                      .flushed = cast.flushed});
  };
  if (is_due(settings_.eval_every, step)) {
    for (UnitIndex unit = 0; unit < units_->units().size(); ++unit) write(unit);
    return;
  }
  for (const UnitIndex unit : supervisor_->alarm().risks) write(unit);
  for (const Finding& finding : supervisor_->outcome().findings) write(finding.unit);
}

/// A signal's word goes to the control file, so that it holds after a crash too and an older word does not come back.
void Trainer::keep_mode(Mode mode) {
  try {
    io::replace_file(folder_.control(), std::string(to_string(mode)) + "\n");
  } catch (const Error& error) {
    observer_.noted(error.what());
  }
}

/// The kill switch: the control file of rank 0 and what the observer was told, the same on all ranks.
void Trainer::follow_mode() {
  std::int64_t wanted = -1;
  std::string why;
  if (writes_files()) {
    const std::optional<Mode> by_signal = observer_.mode_wanted();
    const run::ControlNews news = control_->poll().value_or(run::ControlNews{});
    if (!news.note.empty()) observer_.noted(news.note);
    const std::optional<Mode> mode = by_signal ? by_signal : news.mode;
    why = by_signal ? "a signal" : "the file " + folder_.control();
    if (by_signal) keep_mode(*by_signal);
    if (mode) wanted = static_cast<std::int64_t>(*mode);
  }
  if (collective_.size() > 1) {
    at::Tensor shared = at::tensor({wanted}, at::kLong);
    collective_.largest(shared);
    wanted = shared.item<std::int64_t>();
  }
  if (wanted < 0) return;
  const auto mode = static_cast<Mode>(wanted);
  if (mode == supervisor_->mode()) return;
  supervisor_->set_mode(mode, why);
  observer_.noted("controller: " + std::string(to_string(mode)) + " from now on (" + why + ")");
}

/// Whether it is so on any rank.
bool Trainer::any_rank(bool here) {
  if (collective_.size() == 1) return here;
  at::Tensor shared = at::tensor({here ? 1 : 0}, at::kLong);
  collective_.largest(shared);
  return shared.item<std::int64_t>() != 0;
}

double Trainer::evaluation_loss(bool all_high) {
  const c10::AutoGradMode no_gradients(false);
  const nn::EvaluationPaths paths(*units_, all_high);
  double sum = 0;
  for (std::int64_t index = 0; index < settings_.eval_batches; ++index) {
    const Batch batch = data_->evaluation_batch(index);
    sum += model_->loss(on_device(batch.tokens), on_device(batch.targets)).item<double>();
  }
  return sum / static_cast<double>(settings_.eval_batches);
}

void Trainer::evaluate(std::int64_t step) {
  run::EvalLine line{.step = step, .loss_high = evaluation_loss(true)};
  if (recipe_ != nullptr) line.loss_low = evaluation_loss(false);
  outcome_.loss_high = line.loss_high;
  outcome_.loss_low = line.loss_low;
  if (metrics_) metrics_->write(line);
  observer_.evaluated(line);
}

void Trainer::tell_step(run::TrainLine line, std::int64_t batch) {
  if (batch != line.step) line.batch = batch;
  if (metrics_) metrics_->write(line);
  observer_.stepped(line);
  note_graphs();
}

/// Blocks that could not become graphs run as operators; that is told, once for each reason.
void Trainer::note_graphs() {
  if (!settings_.graphs) return;
  const models::GraphStatistics statistics = model_->graph_statistics();
  std::string failure = statistics.last_failure;
  if (!nn::can_capture(device_)) failure = "this build or device cannot capture";
  if (failure.empty() || failure == told_graph_failure_) return;
  observer_.noted("--graphs: blocks run operator by operator: " + failure);
  told_graph_failure_ = std::move(failure);
}

/// The supervisor may have disarmed itself in a step.
void Trainer::note_new_mode(Mode before) {
  if (supervisor_->mode() == before) return;
  observer_.noted("controller: " + std::string(to_string(supervisor_->mode())) +
                  " from now on: nothing that it did over --disarm-after steps helped");
}

run::TrainOutcome Trainer::run() {
  announce();
  bool stopped = false;
  for (std::int64_t step = next_step_; step <= settings_.steps && !stopped; ++step) {
    follow_mode();
    const Mode mode = supervisor_->mode();
    if (is_late()) {
      train_late(step);
      note_new_mode(mode);
    } else {
      const StepResult result = train_step(step);
      note_new_mode(mode);
      tell_step({.step = step,
                 .loss = result.loss,
                 .lr = learning_rate(schedule_, step),
                 .grad_norm = result.grad_norm,
                 .clip = result.clip,
                 .applied = result.applied,
                 .tokens = info_.batch_tokens,
                 .seconds = result.seconds,
                 .recovered = supervisor_->recovered_count(),
                 .high = static_cast<std::int64_t>(units_->high_count())},
                result.batch);
    }
    outcome_.last_step = step;
    notice_lost_folder();
    // A signal reaches the ranks in different steps, and one that stopped alone would leave the others waiting.
    stopped = any_rank(observer_.stop_wanted());
    if (stopped || is_due(settings_.eval_every, step) || is_due(settings_.checkpoint_every, step)) catch_up();
    if (is_due(settings_.eval_every, step)) evaluate(step);
    if (is_due(settings_.checkpoint_every, step) || stopped) {
      save_checkpoint(step, stopped || step == settings_.steps);
    }
  }
  outcome_.finished = outcome_.last_step >= settings_.steps || next_step_ > settings_.steps;
  if (!lost_folder_.empty()) {
    const std::string newest = CheckpointStore(folder_.checkpoints(), 0, info_.id).newest_text();
    outcome_.unsaved += (outcome_.unsaved.empty() ? "" : "; ") + lost_folder_;
    if (!newest.empty()) outcome_.unsaved += "; --resume continues from " + newest;
  }
  supervisor_->close();
  outcome_.dropped_lines = supervisor_->dropped();
  if (evidence_) {
    evidence_->close();
    outcome_.dropped_lines += evidence_->dropped();
  }
  if (harm_) {
    harm_->close();
    outcome_.dropped_lines += harm_->dropped();
  }
  if (metrics_) {
    metrics_->close();
    outcome_.dropped_lines += metrics_->dropped();
  }
  // A launcher ends all ranks once one has ended with a status, and rank 0 may still be writing: they end together.
  any_rank(false);
  return outcome_;
}

}  // namespace gnmr::train
