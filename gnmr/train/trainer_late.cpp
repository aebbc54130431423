// SPDX-License-Identifier: Apache-2.0
// Steps with a gate (lag 1): each runs as it was planned, and is settled while the next one runs.
#include <chrono>
#include <cmath>
#include <numeric>

#include "gnmr/train/trainer.h"

namespace gnmr::train {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_from(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace

/// Forward and backward of the planned batch; a trial for which there is no memory becomes a plain step.
PassNumbers Trainer::take_planned_pass(UnsettledStep& step) {
  StepPlan& plan = step.plan;
  // One rank that gave up would leave the others waiting.
  if (plan.pass != PassKind::trial || collective_.size() > 1) return take_pass(plan.batch);
  PassNumbers numbers;
  const std::string failure = memory_failure([&] { numbers = take_pass(plan.batch); });
  if (failure.empty()) return numbers;
  tell_failed_trial(plan.step, failure);
  plan.pass = PassKind::step;
  step.failed = true;
  drop_gradients();
  units_->begin_step(plan.batch, PassKind::step, plan.again);
  return take_pass(plan.batch);
}

void Trainer::train_late(std::int64_t step) {
  const auto start = Clock::now();
  UnsettledStep now{.plan = supervisor_->begin(step)};
  const std::span<const UnitIndex> high = supervisor_->high();
  recovered_by_step_.emplace_back(high.begin(), high.end());
  units_->request(high);
  units_->begin_step(now.plan.batch, now.plan.pass, now.plan.again);
  now.recovered = supervisor_->recovered_count();
  now.high = static_cast<std::int64_t>(units_->high_count());
  outcome_.control_seconds += seconds_from(start);
  const bool first_run = now.plan.pass == PassKind::step && !now.plan.again;
  const double aside_seconds = first_run ? measure_harm(now.plan.batch) : 0;
  const auto pass_start = Clock::now();
  now.numbers = take_planned_pass(now);
  gate_->pass(
      now.numbers,
      {.hold = now.plan.hold, .flags = now.plan.gate_flags, .learning_rate = learning_rate(schedule_, step)});
  now.pass_seconds = seconds_from(pass_start);
  units_->end_step();
  drop_gradients();
  settle_late();
  now.seconds = seconds_from(start) - aside_seconds;
  outcome_.step_seconds += now.seconds;
  unsettled_ = std::move(now);
}

/// What is known of a rerun, and of the held run of its batch where there was one.
run::RerunContext Trainer::rerun_context(const UnsettledStep& step, const PassResult& pass) {
  run::RerunContext context{
      .loss = pass.loss, .norm = pass.update.grad_norm, .seconds = step.pass_seconds, .applied = pass.update.applied};
  const auto held = held_.find(step.plan.batch);
  if (held == held_.end()) return context;
  const HeldPass& before = held->second;
  context.loss_before = before.loss;
  context.norm_before = std::sqrt(std::accumulate(before.squares.begin(), before.squares.end(), 0.0));
  context.distance = distance_between(before.squares, pass.squares.parameters);
  if (before.own_norm) context.rank = strangest_rank(*before.own_norm, pass.own_norm);
  return context;
}

/// Reads the numbers of the step that ran last, if nobody has, and has it decided.
void Trainer::settle_late() {
  if (!unsettled_) return;
  UnsettledStep step = std::move(*unsettled_);
  unsettled_.reset();
  const PassResult pass = read_pass(std::move(step.numbers));
  const auto start = Clock::now();
  const std::int64_t number = step.plan.step;
  if (norms_) norms_->write(number, pass.norms.values, pass.norms.sampled);
  const std::vector<double> errors = measured_errors(number, pass);
  run::RunNotes notes{.loss = pass.loss, .clip_coefficient = pass.update.clip};
  if (step.plan.pass != PassKind::step) notes.rerun = rerun_context(step, pass);
  held_.erase(step.plan.batch);
  const Outcome& outcome = supervisor_->report({.step = number,
                                                .norms = pass.norms.values,
                                                .sampled = pass.norms.sampled,
                                                .errors = errors,
                                                .done = step.failed ? Completion::rerun_failed : Completion::complete,
                                                .held = pass.held},
                                               notes);
  const bool comes_again = outcome.action == Action::rerun;
  if (comes_again) {
    held_[step.plan.batch] = {.loss = pass.loss, .squares = pass.squares.parameters, .own_norm = pass.own_norm};
  }
  count_late(step, pass, outcome, comes_again);
  outcome_.control_seconds += seconds_from(start);
  write_evidence(number, [&](UnitIndex unit) { return pass.casts[unit]; });
  tell_step({.step = number,
             .loss = pass.loss,
             .lr = learning_rate(schedule_, number),
             .grad_norm = pass.update.grad_norm,
             .clip = pass.update.clip,
             .applied = pass.update.applied,
             .tokens = info_.batch_tokens,
             .seconds = step.seconds,
             .recovered = step.recovered,
             .high = step.high},
            step.plan.batch);
}

void Trainer::count_late(const UnsettledStep& step, const PassResult& pass, const Outcome& outcome, bool comes_again) {
  outcome_.admissions += outcome.decision.admitted.size();
  if (outcome.alarmed) ++outcome_.alarms;
  if (outcome.dismissed) ++outcome_.dismissed;
  outcome_.risks += supervisor_->alarm().risks.size();
  outcome_.unit_steps += pass.norms.values.size();
  outcome_.recovered_steps += static_cast<std::uint64_t>(step.recovered);
  if (pass.held) ++outcome_.held;
  if (!pass.update.applied && !comes_again) ++outcome_.skipped_updates;
  if (step.plan.pass == PassKind::step) return;
  ++(step.plan.pass == PassKind::trial ? outcome_.trials : outcome_.replays);
  outcome_.rerun_seconds += step.pass_seconds;
}

/// Settles what has run, so that files and state hold all of it; the next step goes on as it would have.
void Trainer::catch_up() {
  if (unsettled_) settle_late();
}

}  // namespace gnmr::train
