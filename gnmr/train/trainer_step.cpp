// SPDX-License-Identifier: Apache-2.0
// One optimizer step: its passes, what is done before the update, the update. With a gate: trainer_late.cpp.
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <chrono>
#include <cmath>
#include <new>

#include "gnmr/core/error.h"
#include "gnmr/torch/squared_norm.h"
#include "gnmr/train/trainer.h"

namespace gnmr::train {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

bool is_about_memory(const std::string& message) {
  return message.find("llocate") != std::string::npos || message.find("out of memory") != std::string::npos;
}

}  // namespace

double distance_between(std::span<const double> first_squares, std::span<const double> second_squares) {
  double difference = 0;
  double size = 0;
  for (std::size_t index = 0; index < first_squares.size(); ++index) {
    const double apart = std::sqrt(first_squares[index]) - std::sqrt(second_squares[index]);
    difference += apart * apart;
    size += second_squares[index];
  }
  return std::sqrt(difference / size);
}

/// A tensor of the host where the model is; the copy waits for nothing.
at::Tensor Trainer::on_device(const at::Tensor& tensor) const {
  return device_.is_cpu() ? tensor : tensor.pin_memory().to(device_, /*non_blocking=*/true);
}

/// The loss of the batch; it stays on the device.
at::Tensor Trainer::run_micro_batches(std::int64_t batch_number) {
  at::Tensor loss = at::zeros({}, at::TensorOptions(device_).dtype(at::kDouble));
  for (std::int64_t micro_batch = 0; micro_batch < settings_.accumulate; ++micro_batch) {
    units_->begin_micro_batch(micro_batch);
    Batch batch = data_->training_batch(batch_number, micro_batch);
    if (laboratory_ != nullptr) laboratory_->change_batch(batch_number, micro_batch, batch);
    at::Tensor part = model_->loss(on_device(batch.tokens), on_device(batch.targets));
    if (settings_.accumulate > 1) part = part / settings_.accumulate;
    part.backward();
    loss = loss + part.detach().to(at::kDouble);
  }
  return loss;
}

/// Gradients become the mean over ranks; what the products measured is summed, largest magnitudes are compared.
void Trainer::reduce_over_ranks(PassNumbers& numbers) {
  if (collective_.size() == 1) return;
  PassResult& pass = numbers.rest;
  const double share = 1.0 / collective_.size();
  double own_square = 0;
  for (const at::Tensor& parameter : units_->parameters()) {
    at::Tensor gradient = parameter.grad();
    if (!gradient.defined()) continue;
    own_square += nn::squared_norm(gradient);
    collective_.sum(gradient);
    gradient.mul_(share);
  }
  pass.own_norm = std::sqrt(own_square);
  std::vector<double> values = pass.squares.products;
  values.insert(values.end(), pass.error_sums.begin(), pass.error_sums.end());
  values.push_back(numbers.loss.item<double>());
  at::Tensor sums = at::tensor(values, at::kDouble);
  collective_.sum(sums);
  const double* const summed = sums.const_data_ptr<double>();
  const std::size_t units = pass.squares.products.size();
  // Each rank's products made gradients of its own share of the loss.
  for (std::size_t unit = 0; unit < units; ++unit) pass.squares.products[unit] = summed[unit] * share * share;
  std::copy_n(summed + units, pass.error_sums.size(), pass.error_sums.begin());
  numbers.loss = at::scalar_tensor(summed[values.size() - 1] * share, at::kDouble);
  at::Tensor amaxes = at::tensor(units_->step_amaxes(), at::kFloat);
  collective_.largest(amaxes);
  units_->set_step_amaxes(std::span(amaxes.const_data_ptr<float>(), static_cast<std::size_t>(amaxes.numel())));
}

void Trainer::find_gradients(PassResult& pass) const {
  pass.squares.has_gradient.clear();
  for (const at::Tensor& parameter : units_->parameters()) {
    pass.squares.has_gradient.push_back(parameter.grad().defined() ? 1 : 0);
  }
}

/// The one pass over the gradients: what all norms and the clip coefficient are made from.
void Trainer::measure_gradients(PassResult& pass) {
  const auto start = Clock::now();
  find_gradients(pass);
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : units_->parameters()) gradients.push_back(parameter.grad());
  pass.squares.parameters = gradient_squares_.measure(gradients);
  outcome_.norm_seconds += seconds_since(start);
}

/// What is asked about the units of a pass, and could not be after another one has begun.
void Trainer::look_at_units(PassResult& pass) {
  if (settings_.controller == "none") return;
  pass.forced_high.clear();
  for (UnitIndex unit = 0; unit < units_->units().size(); ++unit) {
    pass.forced_high.push_back(units_->units()[unit].forced && units_->is_high(unit) ? 1 : 0);
  }
}

/// What was measured in a pass, when it is on the host.
void Trainer::look_at_measurements(PassResult& pass) {
  if (settings_.controller == "none") return;
  const auto start = Clock::now();
  pass.norms = units_->norms(pass.squares.parameters, pass.squares.has_gradient, pass.squares.products);
  for (UnitIndex unit = 0; unit < units_->units().size() && is_late() && evidence_; ++unit) {
    pass.casts.push_back(units_->evidence(unit));
  }
  if (uses_errors() && settings_.evidence_from == "casts") pass.cast_errors = units_->cast_errors();
  outcome_.control_seconds += seconds_since(start);
}

/// Forward and backward as the units' switches say, and all numbers of it; with a gate on a device they stay there.
PassNumbers Trainer::take_pass(std::int64_t batch) {
  PassNumbers numbers;
  numbers.loss = run_micro_batches(batch);
  look_at_units(numbers.rest);
  if (has_device_gate_) {
    find_gradients(numbers.rest);
    return numbers;
  }
  units_->take_measurements(units_->send_measurements().get());
  numbers.rest.squares.products = units_->product_squares();
  if (uses_errors()) numbers.rest.error_sums = units_->error_sums();
  reduce_over_ranks(numbers);
  measure_gradients(numbers.rest);
  look_at_measurements(numbers.rest);
  return numbers;
}

/// The numbers of a pass on the host, waiting for them.
PassResult Trainer::read_pass(PassNumbers numbers) {
  PassResult pass = read(std::move(numbers));
  if (!has_device_gate_) return pass;
  pass.squares.products = units_->product_squares();
  if (uses_errors()) pass.error_sums = units_->error_sums();
  look_at_measurements(pass);
  return pass;
}

/// What an update with these gradients would be.
Trainer::StepResult Trainer::result_of(const PassResult& pass) const {
  const Update update = update_of(pass.squares, settings_.clip);
  return {.loss = pass.loss, .grad_norm = update.grad_norm, .clip = update.clip, .applied = update.applied};
}

void Trainer::drop_gradients() {
  for (const at::Tensor& parameter : units_->parameters()) parameter.mutable_grad().reset();
}

/// Multiplies each parameter's gradient; 0 removes it, whatever it was.
void Trainer::scale_gradients(std::span<const double> coefficients, PassResult& pass) {
  for (std::size_t index = 0; index < coefficients.size(); ++index) {
    at::Tensor gradient = units_->parameters()[index].grad();
    if (!gradient.defined() || coefficients[index] == 1) continue;
    if (coefficients[index] == 0) {
      gradient.zero_();
      pass.squares.parameters[index] = 0;
      continue;
    }
    gradient.mul_(coefficients[index]);
    pass.squares.parameters[index] *= coefficients[index] * coefficients[index];
  }
}

/// Which rank's own gradient changed most from one run of the step to the other.
std::optional<std::int64_t> Trainer::strangest_rank(double alarmed_norm, double rerun_norm) {
  if (collective_.size() == 1) return {};
  std::vector<double> changes(static_cast<std::size_t>(collective_.size()), 0.0);
  const double change = std::abs(alarmed_norm - rerun_norm) / rerun_norm;
  changes[static_cast<std::size_t>(collective_.rank())] = std::isnan(change) ? HUGE_VAL : change;
  at::Tensor all = at::tensor(changes, at::kDouble);
  collective_.sum(all);
  return all.argmax().item<std::int64_t>();
}

/// The batch once more, as a trial or a replay of the alarmed run; its gradient makes the update.
Trainer::StepResult Trainer::run_again(const PassResult& alarmed) {
  const auto start = Clock::now();
  const StepPlan plan = supervisor_->begin(supervisor_->outcome().step);
  const bool is_trial = plan.pass == PassKind::trial;
  drop_gradients();
  units_->request(supervisor_->high());
  units_->begin_step(plan.batch, plan.pass);
  const PassResult rerun = run_pass(plan.batch);
  const StepResult result = result_of(rerun);
  std::vector<double> errors;
  if (is_trial) errors = measured_errors(plan.step, rerun);
  const double seconds = seconds_since(start);
  run::RerunContext context{.loss_before = alarmed.loss,
                            .loss = rerun.loss,
                            .norm_before = std::sqrt(alarmed.squares.total()),
                            .norm = result.grad_norm,
                            .distance = distance_between(alarmed.squares.parameters, rerun.squares.parameters),
                            .seconds = seconds,
                            .applied = result.applied};
  if (is_trial) context.rank = strangest_rank(alarmed.own_norm, rerun.own_norm);
  const Outcome& outcome = supervisor_->report(
      {.step = plan.step, .norms = rerun.norms.values, .sampled = rerun.norms.sampled, .errors = errors},
      {.loss = rerun.loss, .clip_coefficient = result.clip, .rerun = context});
  if (is_trial) outcome_.admissions += outcome.decision.admitted.size();
  ++(is_trial ? outcome_.trials : outcome_.replays);
  outcome_.rerun_seconds += seconds;
  return result;
}

/// Norms and errors go to the supervisor, which says what is done before the update and who recovers next.
Trainer::StepResult Trainer::judge(const StepPlan& plan, PassResult& pass) {
  const auto start = Clock::now();
  const nn::RecoverableUnits::Norms& norms = pass.norms;
  if (norms_) norms_->write(plan.step, norms.values, norms.sampled);
  const std::vector<double> errors = measured_errors(plan.step, pass);
  StepResult result = result_of(pass);
  const run::RunNotes notes{.loss = result.loss, .clip_coefficient = result.clip};
  const Outcome* outcome = &supervisor_->report(
      {.step = plan.step, .norms = norms.values, .sampled = norms.sampled, .errors = errors}, notes);
  outcome_.alarms += outcome->alarmed ? 1 : 0;
  outcome_.dismissed += outcome->dismissed ? 1 : 0;
  outcome_.risks += supervisor_->alarm().risks.size();
  outcome_.unit_steps += norms.values.size();
  outcome_.recovered_steps += static_cast<std::uint64_t>(supervisor_->recovered_count());
  outcome_.control_seconds += seconds_since(start);
  if (outcome->action == Action::rerun && outcome->rerun == PassKind::trial) {
    if (const std::optional<StepResult> tried = try_trial(plan, pass)) return *tried;
    result = result_of(pass);
    outcome = &supervisor_->report({.step = plan.step, .done = Completion::rerun_failed}, notes);
  }
  outcome_.admissions += outcome->decision.admitted.size();
  if (!outcome->clip.empty()) {
    scale_gradients(units_->parameter_coefficients(outcome->clip), pass);
    result = result_of(pass);
  }
  if (outcome->action == Action::rerun) return run_again(pass);
  if (outcome->action == Action::hold) result.applied = false;
  return result;
}

/// What went wrong for want of memory; empty: nothing. Any other failure goes on.
std::string Trainer::memory_failure(const std::function<void()>& attempt) {
  try {
    attempt();
  } catch (const c10::Error& error) {
    // The CPU's allocator has no kind of error of its own.
    if (!is_about_memory(error.what_without_backtrace())) throw;
    return error.what_without_backtrace();
  } catch (const std::bad_alloc&) {
    return "no memory";
  }
  return {};
}

void Trainer::tell_failed_trial(std::int64_t step, const std::string& failure) {
  const std::string text = "step " + std::to_string(step) + ": a trial failed (" + failure + ")";
  supervisor_->note(text);
  observer_.noted(text);
}

/// A trial; none where there was no memory for it, and then the step has been run as before.
std::optional<Trainer::StepResult> Trainer::try_trial(const StepPlan& plan, PassResult& pass) {
  // One rank that gave up would leave the others waiting.
  if (collective_.size() > 1) return run_again(pass);
  StepResult result;
  const std::string failure = memory_failure([&] { result = run_again(pass); });
  if (failure.empty()) return result;
  tell_failed_trial(plan.step, failure);
  drop_gradients();
  units_->begin_step(plan.batch);
  pass = run_pass(plan.batch);
  return {};
}

/// What a rival does to gradients.
Trainer::StepResult Trainer::follow_rule(std::int64_t step, PassResult& pass) {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : units_->parameters()) gradients.push_back(parameter.grad());
  const GradientAction action = laboratory_->gradient_rule()->act(
      {.step = step, .loss = pass.loss, .squares = pass.squares.parameters, .gradients = gradients});
  scale_gradients(action.coefficients, pass);
  if (action.gradients_changed) measure_gradients(pass);
  StepResult result = result_of(pass);
  if (action.replaces_clipping) result.clip = 1;
  result.applied = result.applied && !action.skip;
  return result;
}

Trainer::StepResult Trainer::train_step(std::int64_t step) {
  const auto start = Clock::now();
  const StepPlan plan = supervisor_->begin(step);
  const std::span<const UnitIndex> high = supervisor_->high();
  recovered_by_step_.emplace_back(high.begin(), high.end());
  units_->request(high);
  units_->begin_step(plan.batch);
  outcome_.control_seconds += seconds_since(start);
  const double aside_seconds = measure_harm(plan.batch);
  PassResult pass = run_pass(plan.batch);
  StepResult result = settings_.controller != "none" ? judge(plan, pass) : result_of(pass);
  if (laboratory_ != nullptr && laboratory_->gradient_rule() != nullptr) result = follow_rule(step, pass);
  units_->end_step();
  write_evidence(step, [this](UnitIndex unit) { return units_->evidence(unit); });
  if (result.applied) {
    optimizer_->step(learning_rate(schedule_, step), result.clip);
  } else {
    ++outcome_.skipped_updates;
  }
  drop_gradients();
  result.batch = plan.batch;
  result.seconds = seconds_since(start) - aside_seconds;
  outcome_.step_seconds += result.seconds;
  return result;
}

}  // namespace gnmr::train
