// SPDX-License-Identifier: Apache-2.0
#include "gnmr/run/run_journal.h"

#include <span>
#include <utility>

namespace gnmr::run {

RunJournal::RunJournal(const io::JournalSettings& settings, const Controller& controller,
                       std::vector<std::string> sites, const RerunReasons& reasons)
    : controller_(controller), sites_(std::move(sites)), reasons_(reasons), writer_(settings) {
  writer_.header(controller.units(), controller.options(), io::utc_text(std::chrono::system_clock::now()), sites_);
}

void RunJournal::reported(const ReportedRun& run) {
  if (run.ran != PassKind::step && run.notes.rerun) write_rerun(run);
  if (!run.is_decided) return;
  io::StepContext context{.loss = run.notes.loss,
                          .clip_coefficient = run.notes.clip_coefficient,
                          .capped = run.outcome.capped && run.plan.in_force,
                          .has_signals = !run.norms_dropped};
  if (run.report.held) context.alarm = "held";
  if (run.outcome.called) context.alarm = "called";
  if (run.outcome.spent && run.plan.in_force) context.alarm = "spent";
  if (run.outcome.dismissed) context.alarm = "dismissed";
  const Alarm no_norms{.step = run.outcome.step};
  writer_.step(controller_, run.norms_dropped ? no_norms : run.outcome.alarm, run.outcome.decision, context);
  write_late_modes();
}

void RunJournal::write_rerun(const ReportedRun& run) {
  const Outcome& outcome = run.outcome;
  const RerunContext& context = *run.notes.rerun;
  io::JournalTrial line{.step = outcome.step, .verdict = to_string(outcome.verdict)};
  line.rerun = to_string(run.ran);
  // The findings of a step that was replayed at once are those of its first run.
  const bool has_findings = run.is_first || run.ran == PassKind::trial;
  for (const Finding& finding : has_findings ? outcome.findings : std::span<const Finding>()) {
    line.units.push_back(controller_.units()[finding.unit].name);
    line.errors.push_back(finding.error);
    line.excesses.push_back(finding.excess);
    const std::size_t site = finding.site;
    line.places.push_back(site < sites_.size() ? sites_[site] : std::to_string(site));
  }
  if (context.loss_before) line.losses = {*context.loss_before, context.loss};
  if (context.norm_before) line.norms = {*context.norm_before, context.norm};
  line.distance = context.distance;
  line.seconds = context.seconds;
  line.applied = context.applied;
  if (outcome.verdict == Verdict::unlocated) line.rank = context.rank;
  line.why = reasons_.of_rerun();
  writer_.trial(line);
}

void RunJournal::set_mode(const io::JournalMode& mode, std::int64_t first_step) {
  const std::vector<PlannedStep>& undecided = controller_.plan_state().undecided;
  if (!undecided.empty() && undecided.front().begun && undecided.front().step < first_step) {
    late_modes_.push_back(mode);
  } else {
    writer_.mode(mode);
  }
}

void RunJournal::write_late_modes() {
  for (const io::JournalMode& mode : late_modes_) writer_.mode(mode);
  late_modes_.clear();
}

bool RunJournal::close() {
  write_late_modes();
  return writer_.close();
}

}  // namespace gnmr::run
