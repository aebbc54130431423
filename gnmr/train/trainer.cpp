// SPDX-License-Identifier: Apache-2.0
#include "gnmr/train/trainer.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>

#include <chrono>
#include <cmath>
#include <thread>

#include "gnmr/core/error.h"
#include "gnmr/io/whole_file.h"
#include "gnmr/torch/squared_norm.h"

namespace gnmr::train {
namespace {

constexpr double kLargestNorm = 1e18;
constexpr double kClipEpsilon = 1e-6;  // as in torch's clip_grad_norm_

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// A vector as a tensor that others may be added to.
template <class Number>
at::Tensor as_tensor(const std::vector<Number>& values, at::ScalarType type) {
  return at::tensor(values, type);
}

}  // namespace

Trainer::~Trainer() = default;

double Trainer::run_micro_batches(std::int64_t step) {
  double loss = 0;
  for (std::int64_t micro_batch = 0; micro_batch < settings_.accumulate; ++micro_batch) {
    units_->begin_micro_batch(micro_batch);
    const Batch batch = data_->training_batch(step, micro_batch);
    at::Tensor part = model_->loss(batch.tokens.to(device_), batch.targets.to(device_));
    if (settings_.accumulate > 1) part = part / settings_.accumulate;
    part.backward();
    loss += part.item<double>();
  }
  return loss;
}

/// Gradients become the mean over ranks; what the products measured is summed, largest magnitudes are compared.
void Trainer::reduce_over_ranks(std::vector<double>& product_squares, double& loss) {
  if (collective_.size() == 1) return;
  const double share = 1.0 / collective_.size();
  for (const at::Tensor& parameter : units_->parameters()) {
    at::Tensor gradient = parameter.grad();
    if (!gradient.defined()) continue;
    collective_.sum(gradient);
    gradient.mul_(share);
  }
  product_squares.push_back(loss);
  at::Tensor sums = as_tensor(product_squares, at::kDouble);
  collective_.sum(sums);
  const double* const summed = sums.const_data_ptr<double>();
  // Each rank's products made gradients of its own share of the loss.
  for (std::size_t unit = 0; unit + 1 < product_squares.size(); ++unit) {
    product_squares[unit] = summed[unit] * share * share;
  }
  product_squares.pop_back();
  loss = summed[product_squares.size()] * share;
  at::Tensor amaxes = as_tensor(units_->step_amaxes(), at::kFloat);
  collective_.largest(amaxes);
  units_->set_step_amaxes(std::span(amaxes.const_data_ptr<float>(), static_cast<std::size_t>(amaxes.numel())));
}

/// The one pass over the gradients: norms of the units, the norm of all, the clip coefficient.
Trainer::GradientSquares Trainer::measure_gradients(StepResult& result) {
  const auto start = Clock::now();
  GradientSquares measured;
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : units_->parameters()) {
    gradients.push_back(parameter.grad());
    measured.has_gradient.push_back(gradients.back().defined() ? 1 : 0);
  }
  measured.parameters = nn::squared_norms(gradients);
  double total = 0;
  for (const double square : measured.parameters) total += square;
  result.grad_norm = std::sqrt(total);
  result.applied = std::isfinite(result.grad_norm);
  if (settings_.clip > 0 && result.applied) {
    result.clip = std::min(1.0, settings_.clip / (result.grad_norm + kClipEpsilon));
  }
  // The optimizer squares gradients in float32: what would be infinite there must not reach it either.
  result.applied = result.applied && result.grad_norm * result.clip < kLargestNorm;
  outcome_.norm_seconds += seconds_since(start);
  return measured;
}

/// Norms go to the controller, which decides for the next step.
void Trainer::judge(std::int64_t step, const StepResult& result, const GradientSquares& measured) {
  const nn::RecoverableUnits::Norms norms =
      units_->norms(measured.parameters, measured.has_gradient, measured.products);
  const Decision& decision = supervisor_->observe({.step = step, .norms = norms.values, .sampled = norms.sampled},
                                                  {.loss = result.loss, .clip_coefficient = result.clip});
  outcome_.risks += supervisor_->alarm().risks.size();
  outcome_.admissions += decision.admitted.size();
  outcome_.unit_steps += norms.values.size();
  outcome_.recovered_steps += static_cast<std::uint64_t>(supervisor_->recovered_count());
}

Trainer::StepResult Trainer::train_step(std::int64_t step) {
  const auto start = Clock::now();
  const std::span<const UnitIndex> high = supervisor_->high(step);
  recovered_by_step_.emplace_back(high.begin(), high.end());
  units_->request(high);
  units_->begin_step(step, faults_of(step));
  outcome_.control_seconds += seconds_since(start);
  StepResult result;
  result.loss = run_micro_batches(step);
  std::vector<double> product_squares = units_->product_squares();
  reduce_over_ranks(product_squares, result.loss);
  GradientSquares measured = measure_gradients(result);
  measured.products = std::move(product_squares);
  const auto control_start = Clock::now();
  units_->end_step();
  if (settings_.controller != "none") judge(step, result, measured);
  write_evidence(step);
  outcome_.control_seconds += seconds_since(control_start);
  if (result.applied) {
    optimizer_->step(learning_rate(schedule_, step), result.clip);
  } else {
    ++outcome_.skipped_updates;
  }
  for (const at::Tensor& parameter : units_->parameters()) parameter.mutable_grad().reset();
  outcome_.step_seconds += seconds_since(start);
  return result;
}

std::vector<nn::LayerFault> Trainer::faults_of(std::int64_t step) const {
  std::vector<nn::LayerFault> faults;
  for (const run::PlannedFault& fault : faults_) {
    if (step < fault.step_first || step > fault.step_last) continue;
    const nn::Fault kind = fault.kind == "saturate" ? nn::Fault::saturate : nn::Fault::overflow;
    faults.push_back({layer_names_[fault.unit], kind, static_cast<float>(settings_.fault_strength)});
  }
  return faults;
}

/// What the casts did: of units at risk in every step, of all units when the run is evaluated.
void Trainer::write_evidence(std::int64_t step) {
  if (!evidence_) return;
  const auto write = [&](UnitIndex unit) {
    const nn::CastEvidence seen = units_->evidence(unit);
    if (!seen.measured) return;
    evidence_->write({.step = step,
                      .unit = units_->units()[unit].name,
                      .relative_error = seen.relative_error,
                      .saturated = seen.saturated,
                      .flushed = seen.flushed});
  };
  if (is_due(settings_.eval_every, step)) {
    for (UnitIndex unit = 0; unit < units_->units().size(); ++unit) write(unit);
    return;
  }
  for (const UnitIndex unit : supervisor_->alarm().risks) write(unit);
}

/// A signal's word goes to the control file, so that it holds after a crash too and an older word does not come back.
void Trainer::keep_mode(io::JournalModeKind mode) {
  try {
    io::replace_file(folder_.control(), std::string(io::to_string(mode)) + "\n");
  } catch (const Error& error) {
    observer_.noted(error.what());
  }
}

/// The kill switch: the control file of rank 0 and what the observer was told, the same on all ranks.
void Trainer::follow_mode() {
  std::int64_t wanted = -1;
  std::string why;
  if (writes_files()) {
    const std::optional<io::JournalModeKind> by_signal = observer_.mode_wanted();
    const run::ControlNews news = control_->poll().value_or(run::ControlNews{});
    if (!news.note.empty()) observer_.noted(news.note);
    const std::optional<io::JournalModeKind> mode = by_signal ? by_signal : news.mode;
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
  const auto mode = static_cast<io::JournalModeKind>(wanted);
  if (mode == supervisor_->mode()) return;
  supervisor_->set_mode(mode, why);
  observer_.noted("controller: " + std::string(io::to_string(mode)) + " from now on (" + why + ")");
}

double Trainer::evaluation_loss(bool all_high) {
  const c10::AutoGradMode no_gradients(false);
  const nn::EvaluationPaths paths(*units_, all_high);
  double sum = 0;
  for (std::int64_t index = 0; index < settings_.eval_batches; ++index) {
    const Batch batch = data_->evaluation_batch(index);
    sum += model_->loss(batch.tokens.to(device_), batch.targets.to(device_)).item<double>();
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

run::TrainOutcome Trainer::run() {
  announce();
  bool stopped = false;
  for (std::int64_t step = next_step_; step <= settings_.steps && !stopped; ++step) {
    follow_mode();
    const auto start = Clock::now();
    const StepResult result = train_step(step);
    const run::TrainLine line{.step = step,
                              .loss = result.loss,
                              .lr = learning_rate(schedule_, step),
                              .grad_norm = result.grad_norm,
                              .clip = result.clip,
                              .applied = result.applied,
                              .tokens = info_.batch_tokens,
                              .seconds = seconds_since(start),
                              .recovered = supervisor_->recovered_count(),
                              .high = static_cast<std::int64_t>(units_->high_count())};
    if (metrics_) metrics_->write(line);
    observer_.stepped(line);
    outcome_.last_step = step;
    stopped = observer_.stop_wanted();
    if (is_due(settings_.eval_every, step)) evaluate(step);
    if (is_due(settings_.checkpoint_every, step) || stopped) save_checkpoint(step);
  }
  outcome_.finished = outcome_.last_step >= settings_.steps || next_step_ > settings_.steps;
  supervisor_->close();
  outcome_.dropped_lines = supervisor_->dropped();
  if (evidence_) {
    evidence_->close();
    outcome_.dropped_lines += evidence_->dropped();
  }
  if (metrics_) {
    metrics_->close();
    outcome_.dropped_lines += metrics_->dropped();
  }
  return outcome_;
}

}  // namespace gnmr::train
