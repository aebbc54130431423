// SPDX-License-Identifier: Apache-2.0
#include "gnmr/train/batch_runner.h"

#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "gnmr/torch/cuda_graph.h"
#include "gnmr/torch/squared_norm.h"
#include "gnmr/train/stopwatch.h"

namespace gnmr::train {

BatchRunner::BatchRunner(models::LanguageModel& model, const BatchSource& data, nn::RecoverableUnits& units,
                         nn::Collective& ranks, Experiment* experiment)
    : model_(model),
      data_(data),
      units_(units),
      ranks_(ranks),
      experiment_(experiment),
      device_(units.parameters().front().device()) {}

BatchNumbers BatchRunner::run(const BatchRun& run) {
  const auto start = Clock::now();
  BatchNumbers numbers;
  drop_gradients();
  {
    const Stopwatch stopwatch(unit_seconds_);
    if (measures_errors()) units_.measure_high(run.measured_high);
    units_.begin_step(run.batch, run.pass, run.again);
  }
  if (run.measured && experiment_ != nullptr) {
    const Stopwatch stopwatch(numbers.aside_seconds);
    experiment_->measure(run.batch, units_, [&] { run_micro_batches(run.batch); });
  }
  numbers.device_loss = run_micro_batches(run.batch);
  for (const at::Tensor& parameter : units_.parameters()) {
    numbers.has_gradient.push_back(parameter.grad().defined() ? 1 : 0);
  }
  for (UnitIndex unit = 0; unit < units_.units().size() && settings_.norms; ++unit) {
    numbers.forced_high.push_back(units_.units()[unit].forced && units_.is_high(unit) ? 1 : 0);
  }
  numbers.refresh = run.refresh;
  if (!settings_.gate_on_device) {
    units_.finish_errors(run.refresh);
    units_.take_measurements(units_.send_measurements().get());
    measure(numbers);
    numbers.loss = numbers.device_loss.item<double>();
  }
  numbers.seconds = seconds_since(start) - numbers.aside_seconds;
  return numbers;
}

void BatchRunner::read(BatchNumbers& numbers) {
  if (numbers.pending == nullptr) return;
  numbers.pending->complete(numbers);
  numbers.pending.reset();
  measure(numbers);
}

/// The loss of the batch; it stays on the device.
at::Tensor BatchRunner::run_micro_batches(std::int64_t batch) {
  at::Tensor loss = at::zeros({}, at::TensorOptions(device_).dtype(at::kDouble));
  for (std::int64_t micro_batch = 0; micro_batch < settings_.accumulate; ++micro_batch) {
    units_.begin_micro_batch(micro_batch);
    Batch tokens = data_.training_batch(batch, micro_batch);
    if (experiment_ != nullptr) experiment_->change_batch(batch, micro_batch, tokens);
    at::Tensor part = model_.loss(on_device(tokens.tokens), on_device(tokens.targets));
    if (settings_.accumulate > 1) part = part / settings_.accumulate;
    part.backward();
    loss = loss + part.detach().to(at::kDouble);
  }
  return loss;
}

/// A tensor of the host where the model is; the copy waits for nothing.
at::Tensor BatchRunner::on_device(const at::Tensor& tensor) const {
  return device_.is_cpu() ? tensor : tensor.pin_memory().to(device_, /*non_blocking=*/true);
}

/// Gradients become the mean over ranks; what the products measured is summed, largest magnitudes are compared.
void BatchRunner::reduce_over_ranks(BatchNumbers& numbers, std::vector<double>& unit_squares,
                                    std::vector<double>& error_sums) {
  const double share = 1.0 / ranks_.size();
  double own_square = 0;
  for (const at::Tensor& parameter : units_.parameters()) {
    at::Tensor gradient = parameter.grad();
    if (!gradient.defined()) continue;
    own_square += nn::squared_norm(gradient);
    ranks_.sum(gradient);
    gradient.mul_(share);
  }
  numbers.own_norm = std::sqrt(own_square);
  std::vector<double> values = unit_squares;
  values.insert(values.end(), error_sums.begin(), error_sums.end());
  values.push_back(numbers.device_loss.item<double>());
  at::Tensor sums = at::tensor(values, at::kDouble);
  ranks_.sum(sums);
  const double* const summed = sums.const_data_ptr<double>();
  const std::size_t units = unit_squares.size();
  // Each rank's products made gradients of its own share of the loss.
  for (std::size_t unit = 0; unit < units; ++unit) unit_squares[unit] = summed[unit] * share * share;
  std::copy_n(summed + units, error_sums.size(), error_sums.begin());
  numbers.device_loss = at::scalar_tensor(summed[values.size() - 1] * share, at::kDouble);
  at::Tensor amaxes = at::tensor(units_.step_amaxes(), at::kFloat);
  ranks_.largest(amaxes);
  units_.set_step_amaxes(std::span(amaxes.const_data_ptr<float>(), static_cast<std::size_t>(amaxes.numel())));
}

/// Norms and errors of the units and, unless a gate on the device has made it, the one pass over the gradients.
void BatchRunner::measure(BatchNumbers& numbers) {
  std::vector<double> unit_squares = units_.product_squares();
  std::vector<double> error_sums;
  if (measures_errors()) error_sums = units_.error_sums();
  if (ranks_.size() > 1) reduce_over_ranks(numbers, unit_squares, error_sums);
  if (!settings_.gate_on_device) measure_gradients(numbers);
  for (UnitIndex unit = 0; unit < units_.units().size() && settings_.casts; ++unit) {
    numbers.casts.push_back(units_.evidence(unit));
  }
  if (!settings_.norms) return;
  const Stopwatch stopwatch(unit_seconds_);
  numbers.norms = units_.norms(numbers.squares, numbers.has_gradient, unit_squares);
  if (settings_.errors == ErrorMeasure::comparison) numbers.errors = units_.errors(error_sums);
  if (settings_.errors == ErrorMeasure::casts) numbers.errors = units_.cast_errors();
  if (!settings_.judges_errors) return;
  numbers.judged_errors = numbers.errors;
  const std::vector<std::uint8_t> stale = units_.stale_sites(numbers.refresh);
  for (std::size_t index = 0; index < numbers.judged_errors.size(); ++index) {
    // However the low path of a unit that the user keeps high would do: nobody can act on it. What a new scale mends
    // needs no other answer.
    if (numbers.forced_high[index / nn::kProductCount] != 0 || stale[index] != 0) {
      numbers.judged_errors[index] = std::numeric_limits<double>::quiet_NaN();
    }
  }
}

/// What all norms and the clip coefficient are made from.
void BatchRunner::measure_gradients(BatchNumbers& numbers) {
  const Stopwatch stopwatch(norm_seconds_);
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : units_.parameters()) gradients.push_back(parameter.grad());
  numbers.squares = gradient_squares_.measure(gradients);
  numbers.update = update_of(numbers.squares, settings_.largest_norm);
}

void BatchRunner::scale_gradients(std::span<const double> coefficients, BatchNumbers& numbers) {
  for (std::size_t index = 0; index < coefficients.size(); ++index) {
    at::Tensor gradient = units_.parameters()[index].grad();
    if (!gradient.defined() || coefficients[index] == 1) continue;
    if (coefficients[index] == 0) {
      gradient.zero_();
      numbers.squares[index] = 0;
      continue;
    }
    gradient.mul_(coefficients[index]);
    numbers.squares[index] *= coefficients[index] * coefficients[index];
  }
  numbers.update = update_of(numbers.squares, settings_.largest_norm);
}

void BatchRunner::follow(GradientRule& rule, std::int64_t step, BatchNumbers& numbers) {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : units_.parameters()) gradients.push_back(parameter.grad());
  const GradientAction action =
      rule.act({.step = step, .loss = numbers.loss, .squares = numbers.squares, .gradients = gradients});
  numbers.rule_acted = action.changes_update(numbers.update.clip);
  scale_gradients(action.coefficients, numbers);
  if (action.gradients_changed) measure_gradients(numbers);
  if (action.replaces_clipping) numbers.update.clip = 1;
  numbers.update.applied = numbers.update.applied && !action.skip;
}

void BatchRunner::drop_gradients() {
  for (const at::Tensor& parameter : units_.parameters()) parameter.mutable_grad().reset();
}

double BatchRunner::evaluation_loss(nn::EvaluatedPath path) {
  const c10::AutoGradMode no_gradients(false);
  const nn::EvaluationPaths paths(units_, path);
  double sum = 0;
  for (std::int64_t index = 0; index < settings_.eval_batches; ++index) {
    const Batch batch = data_.evaluation_batch(index);
    sum += model_.loss(on_device(batch.tokens), on_device(batch.targets)).item<double>();
  }
  return sum / static_cast<double>(settings_.eval_batches);
}

std::string BatchRunner::graph_news() {
  if (!settings_.graphs) return {};
  std::string failure = nn::can_capture(device_) ? model_.graph_failure() : "this build or device cannot capture";
  if (failure.empty() || failure == known_graph_failure_) return {};
  known_graph_failure_ = failure;
  return failure;
}

}  // namespace gnmr::train
