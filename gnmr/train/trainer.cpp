// SPDX-License-Identifier: Apache-2.0
#include "gnmr/train/trainer.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <new>
#include <utility>

#include "gnmr/core/message_text.h"
#include "gnmr/train/rank_agreement.h"
#include "gnmr/train/stopwatch.h"

namespace gnmr::train {
namespace {

bool is_about_memory(const std::string& message) {
  return message.find("llocate") != std::string::npos || message.find("out of memory") != std::string::npos;
}

}  // namespace

Trainer::Trainer(const run::TrainSettings& settings, run::TrainObserver& observer, nn::Collective& ranks,
                 const RunMakers& makers)
    : parts_(settings, observer, ranks),
      schedule_{.highest = settings.lr,
                .final_share = settings.min_lr,
                .warmup_steps = settings.warmup,
                .steps = settings.steps,
                .then_at = settings.then_at,
                .then_highest = settings.then_lr} {
  RunBuilder(parts_, makers).build();
}

run::TrainOutcome Trainer::run() {
  const run::TrainSettings& settings = parts_.settings;
  parts_.observer.started(start_of(parts_));
  bool stopped = false;
  for (std::int64_t step = parts_.next_step; !stopped; ++step) {
    if (parts_.next_batch(step) > settings.steps) {
      if (is_over()) break;
      leave_out(step);
      continue;
    }
    follow_kill_switch();
    take_step(step);
    parts_.outcome.last_step = step;
    parts_.writer->check_folder(step);
    // A signal reaches the ranks in different steps, and one that stopped alone would leave the others waiting.
    stopped = any_rank(parts_.ranks, parts_.observer.stop_wanted());
    const bool ends = parts_.next_batch(step + 1) > settings.steps && is_over();
    // Where only held batches are left the next evaluation is the last, so that its line says that the run has ended.
    const bool has_fresh = parts_.supervisor->controller().plan_state().next_batch <= settings.steps;
    const bool is_evaluated = ends || (has_fresh && is_due(settings.eval_every, step));
    const bool is_saved = stopped || ends || is_due(settings.checkpoint_every, step);
    if (late_ && (is_evaluated || is_saved)) report_late_step();
    if (is_evaluated) evaluate(step);
    if (is_saved) save_checkpoint(step, stopped || ends);
  }
  return finish();
}

/// Where no fresh batch is left: whether none comes again either. The last one may be held, so the host waits for it.
bool Trainer::is_over() {
  if (late_) report_late_step();
  const std::vector<WaitingBatch>& waiting = parts_.supervisor->controller().plan_state().waiting;
  // A finished run that goes on with lag 0 has the batch after its last one there: it was planned.
  return std::none_of(waiting.begin(), waiting.end(),
                      [this](const WaitingBatch& one) { return one.batch <= parts_.settings.steps; });
}

/// A step that was planned for a batch after the last one, before the last one was known to be held: it runs nothing.
void Trainer::leave_out(std::int64_t step) {
  parts_.supervisor->begin(step);
  parts_.supervisor->report({.step = step, .done = Completion::dropped}, {});
}

/// One optimizer step. With lag 0 its update waits for the report, which may ask for the same step again; with lag 1 a
/// gate makes the update, and the step before is reported while this one runs.
void Trainer::take_step(std::int64_t number) {
  const auto start = Clock::now();
  run::Supervisor& supervisor = *parts_.supervisor;
  nn::RecoverableUnits& units = *parts_.units;
  const Mode mode = supervisor.mode();
  if (parts_.experiment != nullptr && parts_.experiment->changes_weights(number)) change_weights();
  Step now;
  do {
    const bool is_first = now.plan.step != number;
    {
      const Stopwatch stopwatch(parts_.outcome.seconds.control);
      now.plan = supervisor.begin(number);
      now.learning_rate = learning_rate(schedule_, now.plan.batch);
      now.recovered = supervisor.recovered_count();
      now.standing = supervisor.standing_count();
      // Scales are renewed early only while decisions are carried out.
      const bool renews = parts_.has_controller() && supervisor.is_in_force(number);
      now.refresh.factor = renews ? static_cast<float>(parts_.settings.refresh) : 0.0F;
      units.request(supervisor.high(), supervisor.in_recovery());
    }
    if (is_first) recovered_by_step_.emplace_back(supervisor.high().begin(), supervisor.high().end());
    run_batch(now);
  } while (parts_.gate == nullptr && report(now) == Action::rerun);
  make_update(now);
  units.end_step(now.refresh);
  parts_.runner->drop_gradients();
  now.high = static_cast<std::int64_t>(units.high_count());
  if (late_) report_late_step();
  now.seconds = seconds_since(start) - now.aside_seconds;
  parts_.outcome.seconds.steps += now.seconds;
  if (supervisor.mode() != mode) {
    parts_.observer.noted("controller: " + std::string(to_string(supervisor.mode())) +
                          " from now on: nothing that it did over --disarm-after steps helped");
  }
  if (parts_.gate != nullptr) {
    late_ = std::move(now);
  } else {
    parts_.log->finished(now);
  }
}

/// Lets the experiment change weights, and what the optimizer keeps of them.
void Trainer::change_weights() {
  models::NamedTensors tensors = parts_.optimizer->state();
  for (const OptimizedParameter& parameter : parts_.optimizer->parameters()) {
    tensors.emplace_back(parameter.name, parameter.tensor);
  }
  parts_.experiment->change_weights(tensors);
}

/// Forward, backward and the pass over the gradients. A trial for which there is no memory runs as a plain step, and a
/// plain step that has none for low paths beside high ones without these.
void Trainer::run_batch(Step& now) {
  const StepPlan& plan = now.plan;
  // Any other failure is thrown on, and so is one of several ranks: a rank that gave up would leave the others waiting.
  const bool is_trial = plan.pass == PassKind::trial;
  const bool may_fail = (is_trial || !plan.measure.empty()) && parts_.ranks.size() == 1;
  std::string failure;
  try {
    now.numbers = parts_.runner->run({.batch = plan.batch,
                                      .pass = plan.pass,
                                      .again = plan.again,
                                      .measured = plan.pass == PassKind::step && !plan.again,
                                      .measured_high = plan.measure,
                                      .refresh = now.refresh});
  } catch (const c10::Error& error) {
    // The CPU's allocator has no kind of error of its own.
    failure = error.what_without_backtrace();
    if (!may_fail || !is_about_memory(failure)) throw;
  } catch (const std::bad_alloc&) {
    if (!may_fail) throw;
    failure = "no memory";
  }
  now.failed = is_trial && !failure.empty();
  if (!failure.empty()) {
    const std::string what = is_trial ? ": a trial failed (" : ": units in recovery could not be measured (";
    warn("step " + std::to_string(plan.step) + what + failure + ")");
    // With lag 0 a trial is the plain run of this step once more.
    now.numbers = parts_.runner->run(
        {.batch = plan.batch, .again = parts_.gate != nullptr && plan.again, .refresh = now.refresh});
  }
  now.aside_seconds += now.numbers.aside_seconds;
  now.high_cost += parts_.units->high_cost_share();
}

/// Norms and errors of a run go to the supervisor, whose outcome says what becomes of the update.
Action Trainer::report(const Step& step) {
  if (!parts_.has_controller()) return Action::apply;
  const Stopwatch stopwatch(parts_.outcome.seconds.control);
  const BatchNumbers& numbers = step.numbers;
  run::RunNotes notes{.loss = numbers.loss,
                      .clip_coefficient = numbers.update.clip,
                      .rerun = {},
                      .errors = numbers.errors,
                      .recovered = step.recovered,
                      .standing = step.standing};
  if (step.is_rerun()) notes.rerun = parts_.held.compare(step.plan.batch, numbers, parts_.ranks);
  parts_.held.drop(step.plan.batch);
  const Outcome& outcome =
      parts_.supervisor->report({.step = step.plan.step,
                                 .norms = numbers.norms.values,
                                 .sampled = numbers.norms.sampled,
                                 .errors = numbers.judged_errors,
                                 .done = step.failed ? Completion::rerun_failed : Completion::complete,
                                 .held = numbers.held},
                                notes);
  if (outcome.action == Action::rerun) parts_.held.keep(step.plan.batch, numbers);
  return outcome.action;
}

/// The update of the last run of the step: by the gate, or as the outcome, and a rival's rule, say.
void Trainer::make_update(Step& now) {
  if (parts_.gate != nullptr) {
    parts_.gate->pass(now.numbers, {.hold = now.plan.hold,
                                    .flags = now.plan.gate_flags,
                                    .error_limits = now.plan.error_limits,
                                    .learning_rate = now.learning_rate});
    return;
  }
  const Outcome& outcome = parts_.supervisor->outcome();
  if (!outcome.clip.empty()) {
    parts_.runner->scale_gradients(parts_.units->parameter_coefficients(outcome.clip), now.numbers);
  }
  if (outcome.action == Action::hold) now.numbers.update.applied = false;
  GradientRule* const rule = parts_.experiment != nullptr ? parts_.experiment->gradient_rule() : nullptr;
  if (rule != nullptr) parts_.runner->follow(*rule, now.plan.step, now.numbers);
  if (now.numbers.update.applied) parts_.optimizer->step(now.learning_rate, now.numbers.update.clip);
}

/// With lag 1: reports the step that ran last.
void Trainer::report_late_step() {
  Step step = std::move(*late_);
  late_.reset();
  parts_.runner->read(step.numbers);
  report(step);
  parts_.log->finished(step);
}

void Trainer::follow_kill_switch() {
  const std::optional<ModeRequest> request = parts_.kill_switch->poll();
  if (!request || request->mode == parts_.supervisor->mode()) return;
  parts_.supervisor->set_mode(request->mode, request->why);
  parts_.observer.noted("controller: " + std::string(to_string(request->mode)) + " from now on (" + request->why + ")");
}

/// To the journal and to the observer.
void Trainer::warn(const std::string& text) {
  parts_.supervisor->note(text);
  parts_.observer.noted(text);
}

void Trainer::evaluate(std::int64_t step) {
  using nn::EvaluatedPath;
  run::EvalLine line{.step = step, .loss_high = parts_.runner->evaluation_loss(EvaluatedPath::high)};
  if (parts_.has_low_path()) {
    const std::size_t high = parts_.units->high_count();
    line.loss_low = parts_.runner->evaluation_loss(EvaluatedPath::low);
    line.loss_trained = high == 0 ? *line.loss_low : parts_.runner->evaluation_loss(EvaluatedPath::trained);
  }
  parts_.outcome.loss_high = line.loss_high;
  parts_.writer->write(line);
  parts_.observer.evaluated(line);
}

void Trainer::save_checkpoint(std::int64_t step, bool is_last) {
  if (!parts_.writer->writes()) return;
  parts_.supervisor->flush(kLongestWait);
  if (parts_.experiment != nullptr) parts_.experiment->flush(kLongestWait);
  const auto warned = [this](const std::string& text) { warn(text); };
  parts_.outcome.unsaved = parts_.writer->save(checkpoint_of(parts_, step), is_last, warned);
}

run::TrainOutcome Trainer::finish() {
  run::TrainOutcome& outcome = parts_.outcome;
  outcome.finished = parts_.next_batch(outcome.last_step + 1) > parts_.settings.steps && is_over();
  const std::string lost = parts_.writer->lost_folder_text();
  if (!lost.empty()) outcome.unsaved += (outcome.unsaved.empty() ? "" : "; ") + lost;
  outcome.control.standing = parts_.supervisor->outcome().decision.standing.size();
  outcome.refreshes = parts_.units->refreshes();
  if (outcome.refreshes > 0) {
    parts_.supervisor->note(counted(outcome.refreshes, "scale was", "scales were") +
                            " renewed early so far (--refresh)");
  }
  parts_.supervisor->close();
  outcome.dropped_lines = parts_.supervisor->dropped() + parts_.writer->close();
  if (parts_.experiment != nullptr) outcome.dropped_lines += parts_.experiment->close_files();
  outcome.seconds.norms = parts_.runner->norm_seconds();
  outcome.seconds.control += parts_.runner->unit_seconds();
  // A launcher ends all ranks once one has ended with a status, and rank 0 may still be writing: they end together.
  any_rank(parts_.ranks, false);
  return outcome;
}

}  // namespace gnmr::train
