// SPDX-License-Identifier: Apache-2.0
#include "gnmr/train/trainer.h"

#include <c10/util/Exception.h>

#include <new>
#include <numeric>

#include "gnmr/train/rank_agreement.h"
#include "gnmr/train/schedule.h"
#include "gnmr/train/stopwatch.h"

namespace gnmr::train {
namespace {

bool is_about_memory(const std::string& message) {
  return message.find("llocate") != std::string::npos || message.find("out of memory") != std::string::npos;
}

}  // namespace

Trainer::~Trainer() = default;

run::TrainOutcome Trainer::run() {
  announce();
  bool stopped = false;
  for (std::int64_t step = next_step_; step <= settings_.steps && !stopped; ++step) {
    follow_kill_switch();
    train_step(step);
    outcome_.last_step = step;
    writer_->check_folder(step);
    // A signal reaches the ranks in different steps, and one that stopped alone would leave the others waiting.
    stopped = any_rank(ranks_, observer_.stop_wanted());
    if (stopped || is_due(settings_.eval_every, step) || is_due(settings_.checkpoint_every, step)) report_late_step();
    if (is_due(settings_.eval_every, step)) evaluate(step);
    if (is_due(settings_.checkpoint_every, step) || stopped) {
      save_checkpoint(step, stopped || step == settings_.steps);
    }
  }
  return finish();
}

void Trainer::train_step(std::int64_t step) {
  const auto start = Clock::now();
  const Mode mode = supervisor_->mode();
  Step now;
  begin(step, now);
  recovered_by_step_.emplace_back(supervisor_->high().begin(), supervisor_->high().end());
  run_batch(now);
  if (gate_ != nullptr) {
    gate_->pass(now.numbers, {.hold = now.plan.hold, .flags = now.plan.gate_flags, .learning_rate = rate_of(step)});
  } else {
    find_update(now);
    if (now.numbers.update.applied) optimizer_->step(rate_of(step), now.numbers.update.clip);
  }
  units_->end_step();
  runner_->drop_gradients();
  now.high = static_cast<std::int64_t>(units_->high_count());
  report_late_step();
  now.seconds = seconds_since(start) - now.aside_seconds;
  outcome_.step_seconds += now.seconds;
  note_new_mode(mode);
  if (gate_ != nullptr) {
    late_ = std::move(now);
  } else {
    log_step(now);
  }
}

/// What the next run of the step is, and which units run high in it.
void Trainer::begin(std::int64_t step, Step& now) {
  const auto start = Clock::now();
  now.plan = supervisor_->begin(step);
  now.recovered = supervisor_->recovered_count();
  units_->request(supervisor_->high());
  outcome_.control_seconds += seconds_since(start);
}

/// Forward and backward as planned. A trial for which there is no memory runs as a plain step.
void Trainer::run_batch(Step& now) {
  const StepPlan& plan = now.plan;
  const bool is_first = plan.pass == PassKind::step && !plan.again;
  BatchRun run{.batch = plan.batch, .pass = plan.pass, .again = plan.again, .measured = is_first};
  const std::string failure = memory_failure(plan.pass, [&] { now.numbers = runner_->run(run); });
  now.failed = !failure.empty();
  if (now.failed) {
    warn("step " + std::to_string(plan.step) + ": a trial failed (" + failure + ")");
    // With lag 0 it is the plain run of this step once more.
    run = {.batch = plan.batch, .again = gate_ != nullptr && plan.again};
    now.numbers = runner_->run(run);
  }
  now.aside_seconds += now.numbers.aside_seconds;
}

/// With lag 0: the step is reported before its update, and runs again where the outcome says so.
void Trainer::find_update(Step& now) {
  if (settings_.controller != "none") {
    while (report(now).action == Action::rerun) {
      begin(now.plan.step, now);
      run_batch(now);
    }
    const Outcome& outcome = supervisor_->outcome();
    if (!outcome.clip.empty()) runner_->scale_gradients(units_->parameter_coefficients(outcome.clip), now.numbers);
    if (outcome.action == Action::hold) now.numbers.update.applied = false;
  }
  GradientRule* const rule = experiment_ != nullptr ? experiment_->gradient_rule() : nullptr;
  if (rule != nullptr) runner_->follow(*rule, now.plan.step, now.numbers);
}

/// With lag 1: reports the step that ran last, if nobody has.
void Trainer::report_late_step() {
  if (!late_) return;
  Step step = std::move(*late_);
  late_.reset();
  runner_->read(step.numbers);
  report(step);
  log_step(step);
}

/// Norms and errors of a run go to the supervisor, whose outcome says what becomes of the update.
const Outcome& Trainer::report(const Step& step) {
  const auto start = Clock::now();
  const std::int64_t batch = step.plan.batch;
  const BatchNumbers& numbers = step.numbers;
  const bool is_rerun = step.plan.pass != PassKind::step && !step.failed;
  writer_->write_norms(step.plan.step, numbers.norms);
  const std::vector<double> errors = log_errors(step);
  run::RunNotes notes{.loss = numbers.loss, .clip_coefficient = numbers.update.clip};
  if (is_rerun) notes.rerun = held_.compare(batch, numbers, ranks_);
  held_.drop(batch);
  const Outcome& outcome = supervisor_->report({.step = step.plan.step,
                                                .norms = numbers.norms.values,
                                                .sampled = numbers.norms.sampled,
                                                .errors = errors,
                                                .done = step.failed ? Completion::rerun_failed : Completion::complete,
                                                .held = numbers.held},
                                               notes);
  if (outcome.action == Action::rerun) held_.keep(batch, numbers);
  count(step, outcome);
  outcome_.control_seconds += seconds_since(start);
  return outcome;
}

/// Alarms count once per step, admissions once per decision: with lag 0 a replay was decided by its first run.
void Trainer::count(const Step& step, const Outcome& outcome) {
  const bool is_late = gate_ != nullptr;
  if (outcome.decided_step && (is_late || step.plan.pass != PassKind::replay)) {
    outcome_.admissions += outcome.decision.admitted.size();
  }
  if (step.plan.pass != PassKind::step && !step.failed) {
    ++(step.plan.pass == PassKind::trial ? outcome_.trials : outcome_.replays);
    outcome_.rerun_seconds += step.numbers.seconds;
  }
  if (!is_late && step.plan.again) return;
  outcome_.alarms += outcome.alarmed ? 1U : 0U;
  outcome_.dismissed += outcome.dismissed ? 1U : 0U;
  outcome_.risks += supervisor_->alarm().risks.size();
  outcome_.unit_steps += step.numbers.norms.values.size();
  outcome_.recovered_steps += static_cast<std::uint64_t>(step.recovered);
  outcome_.held += step.numbers.held ? 1U : 0U;
}

/// What went wrong in a trial for want of memory; empty: nothing. Any other failure is thrown on, and so is one of
/// several ranks: a rank that gave up would leave the others waiting.
std::string Trainer::memory_failure(PassKind pass, const std::function<void()>& attempt) {
  if (pass != PassKind::trial || ranks_.size() > 1) {
    attempt();
    return {};
  }
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

/// Logs the errors of a run; those that the supervisor goes by.
std::vector<double> Trainer::log_errors(const Step& step) {
  if (step.numbers.errors.empty()) return {};
  writer_->write_errors(step.plan.step, step.numbers.errors);
  if (supervisor_->controller().selector() == Selector::norms) return {};
  return judged_errors(step.numbers);
}

/// What casts did: of units at risk or with errors above their limits in every step, of all units when the run is
/// evaluated.
void Trainer::log_evidence(const Step& step) {
  if (is_due(settings_.eval_every, step.plan.step)) {
    std::vector<UnitIndex> all(units_->units().size());
    std::iota(all.begin(), all.end(), UnitIndex{0});
    writer_->write_evidence(step.plan.step, all, step.numbers.casts);
    return;
  }
  std::vector<UnitIndex> found;
  for (const Finding& finding : supervisor_->outcome().findings) found.push_back(finding.unit);
  writer_->write_evidence(step.plan.step, supervisor_->alarm().risks, step.numbers.casts);
  writer_->write_evidence(step.plan.step, found, step.numbers.casts);
}

void Trainer::log_step(const Step& step) {
  log_evidence(step);
  const BatchNumbers& numbers = step.numbers;
  if (!numbers.update.applied && supervisor_->outcome().action != Action::rerun) ++outcome_.skipped_updates;
  run::TrainLine line{.step = step.plan.step,
                      .loss = numbers.loss,
                      .lr = rate_of(step.plan.step),
                      .grad_norm = numbers.update.grad_norm,
                      .clip = numbers.update.clip,
                      .applied = numbers.update.applied,
                      .tokens = writer_->info().batch_tokens,
                      .seconds = step.seconds,
                      .recovered = step.recovered,
                      .high = step.high};
  if (step.plan.batch != line.step) line.batch = step.plan.batch;
  writer_->write(line);
  observer_.stepped(line);
  const std::string failure = runner_->graph_news();
  if (!failure.empty()) observer_.noted("--graphs: blocks run operator by operator: " + failure);
}

void Trainer::follow_kill_switch() {
  const std::optional<ModeRequest> request = kill_switch_->poll();
  if (!request || request->mode == supervisor_->mode()) return;
  supervisor_->set_mode(request->mode, request->why);
  observer_.noted("controller: " + std::string(to_string(request->mode)) + " from now on (" + request->why + ")");
}

/// The supervisor may have disarmed itself in a step.
void Trainer::note_new_mode(Mode before) {
  if (supervisor_->mode() == before) return;
  observer_.noted("controller: " + std::string(to_string(supervisor_->mode())) +
                  " from now on: nothing that it did over --disarm-after steps helped");
}

/// To the journal and to the observer.
void Trainer::warn(const std::string& text) {
  supervisor_->note(text);
  observer_.noted(text);
}

void Trainer::evaluate(std::int64_t step) {
  run::EvalLine line{.step = step, .loss_high = runner_->evaluation_loss(true)};
  if (has_low_path()) line.loss_low = runner_->evaluation_loss(false);
  outcome_.loss_high = line.loss_high;
  outcome_.loss_low = line.loss_low;
  writer_->write(line);
  observer_.evaluated(line);
}

void Trainer::save_checkpoint(std::int64_t step, bool is_last) {
  if (!writer_->writes()) return;
  supervisor_->flush(kLongestWait);
  std::map<std::string, std::string> extra = arithmetic();
  extra[kSkippedKey] = std::to_string(outcome_.skipped_updates);
  if (!held_.is_empty()) extra[kHeldKey] = held_.save();
  if (experiment_ != nullptr) {
    experiment_->flush(kLongestWait);
    extra.merge(experiment_->save());
  }
  // What the kill switch asked for goes on; what the settings asked for they ask for again.
  const Mode asked = switches_units() ? Mode::armed : Mode::watch;
  if (supervisor_->mode() != asked) extra[kModeKey] = to_string(supervisor_->mode());
  const CheckpointParts parts{.info = {.step = step,
                                       .run = writer_->info().id,
                                       .settings = settings_,
                                       .program = writer_->info().program,
                                       .data = data_->fingerprint(),
                                       .extra = std::move(extra)},
                              .optimizer = optimizer_->state(),
                              .low_path = units_->memory(),
                              .controller = supervisor_->save(),
                              .write_model = [this](const std::string& folder) { return model_->save_to(folder); }};
  outcome_.unsaved = writer_->save(parts, is_last, [this](const std::string& text) { warn(text); });
}

run::TrainOutcome Trainer::finish() {
  outcome_.finished = outcome_.last_step >= settings_.steps || next_step_ > settings_.steps;
  const std::string lost = writer_->lost_folder_text();
  if (!lost.empty()) outcome_.unsaved += (outcome_.unsaved.empty() ? "" : "; ") + lost;
  supervisor_->close();
  outcome_.dropped_lines = supervisor_->dropped() + writer_->close();
  if (experiment_ != nullptr) outcome_.dropped_lines += experiment_->close_files();
  outcome_.norm_seconds = runner_->norm_seconds();
  outcome_.control_seconds += runner_->unit_seconds();
  // A launcher ends all ranks once one has ended with a status, and rank 0 may still be writing: they end together.
  any_rank(ranks_, false);
  return outcome_;
}

}  // namespace gnmr::train
