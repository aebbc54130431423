// SPDX-License-Identifier: Apache-2.0
#include "gnmr/train/step_log.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "gnmr/train/schedule.h"

namespace gnmr::train {

StepLog::StepLog(RunWriter& writer, run::TrainObserver& observer, const run::Supervisor& supervisor,
                 BatchRunner& runner, run::TrainOutcome& outcome)
    : writer_(writer), observer_(observer), supervisor_(supervisor), runner_(runner), outcome_(outcome) {}

/// Alarms count once per step, admissions once per decision.
void StepLog::reported(const run::ReportedRun& run) {
  const Outcome& outcome = run.outcome;
  run::ControlCounts& counts = outcome_.control;
  const NormSpan& norms = run.report.norms;
  if (norms.size() > 0) writer_.write_norms(run.plan.step, {norms.doubles(), norms.size()}, run.report.sampled);
  writer_.write_errors(run.plan.step, run.notes.errors);
  if (run.is_decided) counts.admissions += outcome.decision.admitted.size();
  if (run.ran != PassKind::step) {
    ++(run.ran == PassKind::trial ? counts.trials : counts.replays);
    outcome_.seconds.reruns += run.notes.rerun->seconds;
    count_rerun(run);
  }
  if (!run.is_first) return;
  counts.alarms += outcome.alarmed ? 1U : 0U;
  counts.dismissed += outcome.dismissed ? 1U : 0U;
  counts.risks += run.norms_dropped ? 0 : outcome.alarm.risks.size();
  counts.high.unit_steps += norms.size();
  counts.high.recovered += static_cast<std::uint64_t>(run.notes.recovered);
  counts.high.standing += static_cast<std::uint64_t>(run.notes.standing);
  counts.held += run.report.held ? 1U : 0U;
}

/// With lag 0 a rerun is one more pass of the step; with lag 1 it is a step, whose units in recovery are counted
/// anyway.
void StepLog::count_rerun(const run::ReportedRun& run) {
  const auto units = static_cast<std::int64_t>(run.report.norms.size());
  const bool is_trial = run.ran == PassKind::trial;
  const auto in_recovery = static_cast<std::int64_t>(supervisor_.in_recovery().size());
  std::int64_t high = is_trial ? units : in_recovery;
  if (run.is_first) high = is_trial ? units - std::min(units, run.notes.recovered) : 0;
  rerun_high_ += high;
  outcome_.control.high.rerun_high += static_cast<std::uint64_t>(high);
}

void StepLog::finished(const Step& step) {
  const BatchNumbers& numbers = step.numbers;
  if (!numbers.casts.empty()) write_evidence(step);
  if (!numbers.update.applied && supervisor_.outcome().action != Action::rerun) ++outcome_.skipped_updates;
  run::TrainLine line{.step = step.plan.step,
                      .loss = numbers.loss,
                      .lr = step.learning_rate,
                      .grad_norm = numbers.update.grad_norm,
                      .clip = numbers.update.clip,
                      .applied = numbers.update.applied,
                      .tokens = writer_.info().batch_tokens,
                      .seconds = step.seconds,
                      .recovered = step.recovered,
                      .high = step.high,
                      .standing = step.standing,
                      .rerun_high = std::exchange(rerun_high_, 0),
                      .high_cost = step.high_cost,
                      .rule_acted = numbers.rule_acted};
  if (step.plan.batch != line.step) line.batch = step.plan.batch;
  writer_.write(line);
  observer_.stepped(line);
  const std::string failure = runner_.graph_news();
  if (!failure.empty()) observer_.noted("--graphs: blocks run operator by operator: " + failure);
}

/// What casts did: of units at risk or with errors above their limits in every step, of all units when the run is
/// evaluated, and in the last batch.
void StepLog::write_evidence(const Step& step) {
  const run::TrainSettings& settings = writer_.info().settings;
  if (step.plan.batch == settings.steps || is_due(settings.eval_every, step.plan.step)) {
    std::vector<UnitIndex> all(step.numbers.casts.size());
    std::iota(all.begin(), all.end(), UnitIndex{0});
    writer_.write_evidence(step.plan.step, all, step.numbers.casts);
    return;
  }
  std::vector<UnitIndex> found;
  for (const Finding& finding : supervisor_.outcome().findings) found.push_back(finding.unit);
  writer_.write_evidence(step.plan.step, supervisor_.alarm().risks, step.numbers.casts);
  writer_.write_evidence(step.plan.step, found, step.numbers.casts);
}

}  // namespace gnmr::train
