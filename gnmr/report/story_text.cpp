// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "gnmr/report/number_format.h"
#include "gnmr/report/story.h"

namespace gnmr::report {
namespace {

constexpr std::size_t kMostInText = 4;  // units that a paragraph names

std::string step_text(const Episode& episode) {
  if (episode.first_step == std::numeric_limits<std::int64_t>::min()) return "at the start";
  if (episode.first_step == episode.last_step) return fmt::format("step {}", episode.first_step);
  return fmt::format("steps {} to {}", episode.first_step, episode.last_step);
}

std::string norm_text(const io::JournalEvent& event) {
  if (!event.ratio) return event.unit + " without a gradient";
  if (!std::isfinite(*event.ratio)) return event.unit + " not finite";
  return fmt::format("{} {} times its mean (rise {}, fall {}, severity {})", event.unit, number_text(*event.ratio, 3),
                     number_text(event.delta), number_text(event.fall), number_text(event.severity));
}

std::string risks_text(const Episode& episode) {
  if (!episode.worst_risk) return {};
  // The observation of an alarmed step is withdrawn for that of its trial.
  const bool of_trial = !episode.reruns.empty() && episode.reruns.front().rerun != "replay";
  std::string text = of_trial ? "norms of the rerun: " : "norms: ";
  text += norm_text(*episode.worst_risk);
  if (episode.risks > 1) text += fmt::format("; {} units at risk", grouped(episode.risks));
  return text;
}

std::string culprit_text(const io::JournalTrial& trial, std::uint64_t outliers) {
  std::string text = trial.units.front();
  if (!trial.places.empty()) text += ", " + trial.places.front();
  const std::optional<double> error = number_in(trial.errors, 0);
  const std::optional<double> excess = number_in(trial.excesses, 0);
  if (error) text += ": error " + number_text(*error, 3);
  if (excess) text += fmt::format("{} {} times its limit", error ? "," : ":", number_text(*excess, 3));
  if (error && excess && std::isfinite(*error) && *excess > 0 && std::isfinite(*excess)) {
    text += " of " + number_text(*error / *excess, 3);
  }
  if (outliers > 1) text += "; " + counted(outliers - 1, "more outlier");
  return text;
}

std::string verdict_text(const io::JournalTrial& trial, std::uint64_t outliers) {
  if (trial.rerun == "replay") return "replay: run again with the units of the decision in high precision";
  if (trial.verdict == "common") return "common: high precision shows it too; the cause is the data or the optimizer";
  if (trial.verdict == "unlocated") {
    std::string text =
        "unlocated: high precision does not show it, and no unit's low path is above its limit; errors of several "
        "units "
        "together, or a fault that does not repeat";
    if (trial.rank) text += fmt::format(", on rank {}", *trial.rank);
    return text;
  }
  std::string text = trial.verdict.empty() ? std::string("run again") : trial.verdict;
  if (!trial.units.empty()) text += ": " + culprit_text(trial, outliers);
  return text;
}

std::string rerun_text(const io::JournalTrial& trial) {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : "; ") + part; };
  if (trial.losses.size() >= 2) {
    add(fmt::format("loss {}, in the rerun {}", number_text(trial.losses[0]), number_text(trial.losses[1])));
  }
  if (trial.distance) add("gradients at least " + number_text(*trial.distance, 3) + " apart");
  if (trial.norms.size() >= 2) {
    add(fmt::format("their norms {} and {}", number_text(trial.norms[0], 3), number_text(trial.norms[1], 3)));
  }
  if (!trial.why.empty()) add("alarm by " + trial.why);
  add(duration_text(trial.seconds));
  if (trial.applied) add(*trial.applied ? "the rerun's gradient made the update" : "there was no update");
  add(std::string(to_string(outcome_of(trial))));
  return "rerun: " + text;
}

std::string admission_text(const Admission& admission, bool watch_only) {
  const Recovery& recovery = admission.recovery;
  std::string text = fmt::format("{}{}: {} in high precision from step {}", admission.event.unit,
                                 admission.by_error ? " by its error" : " by its norm",
                                 watch_only ? "would have been" : "was", recovery.first_step);
  switch (recovery.end) {
    case RecoveryEnd::released:
      text += fmt::format(" to {}, then released", recovery.last_step);
      break;
    case RecoveryEnd::futile:
      text += fmt::format(" to {}, then released as bad as before (futile)", recovery.last_step);
      break;
    case RecoveryEnd::open:
      text += ", still so at the end";
      break;
  }
  if (admission.relapse) {
    text += "; a relapse, locked for " + counted(admission.event.left, "step");
    if (admission.released_before) text += fmt::format(" (released in step {})", *admission.released_before);
  }
  return text;
}

std::string denied_text(const Episode& episode) {
  std::string text = few_of(episode.denied, kMostInText);
  if (episode.denied_count > episode.denied.size()) text += fmt::format(" ({} times)", grouped(episode.denied_count));
  return text;
}

std::string head_of(const Episode& episode) {
  switch (episode.kind) {
    case EpisodeKind::recovery:
      break;
    case EpisodeKind::common:
      return "common: nearly all units at risk at once, so nothing was admitted; the cause is the data or the "
             "optimizer";
    case EpisodeKind::denied:
      return "denied: " + denied_text(episode) + "; no room in the budget";
    case EpisodeKind::resume:
      return "resumed from a saved state";
    case EpisodeKind::mode:
    case EpisodeKind::note:
      return episode.text;
  }
  if (!episode.reruns.empty()) return verdict_text(episode.reruns.front(), episode.outliers);
  return episode.admitted_count == 1 ? "recovery of one unit, not run again"
                                     : fmt::format("recovery of {} units, not run again", episode.admitted_count);
}

std::string alarms_text(const AlarmCounts& alarms) {
  std::string text =
      counted(alarms.steps, "step", "steps") + ", " + counted(alarms.risks, "unit at risk", "units at risk");
  if (alarms.dismissed > 0) text += ", " + grouped(alarms.dismissed) + " answered by the patrol";
  if (alarms.spent > 0)
    text += ", " + grouped(alarms.spent) + " without a rerun (max_trials, max_high_share, or no free place)";
  if (alarms.capped > 0) text += ", in " + counted(alarms.capped, "step", "steps") + " max_high_share denied something";
  return text;
}

std::string recoveries_text(const RecoveryCounts& counts) {
  const std::uint64_t by_norms = counts.all - std::min(counts.all, counts.by_error + counts.standing);
  return fmt::format("{} ({} by error, {} by norm{}; {} futile, {}, {} open at the end)", grouped(counts.all),
                     grouped(counts.by_error), grouped(by_norms),
                     counts.standing > 0 ? ", " + grouped(counts.standing) + " standing" : "", grouped(counts.futile),
                     counted(counts.relapses, "relapse"), grouped(counts.open));
}

}  // namespace

std::vector<std::string> summary_lines(const StorySummary& summary) {
  std::vector<std::string> lines;
  const auto line = [&](const char* name, const std::string& value) {
    lines.push_back(fmt::format("{:<20}{}", name, value));
  };
  std::string steps = grouped(summary.steps);
  if (summary.steps > 0) steps += fmt::format(" ({} to {})", summary.first_step, summary.last_step);
  if (summary.resumes > 0) steps += ", resumed " + counted(summary.resumes, "time", "times");
  if (!summary.name.empty()) line("run", summary.name);
  line("steps", steps);
  line("units", grouped(summary.units) +
                    (summary.budget ? fmt::format(" (budget: {} in recovery at one time)", *summary.budget) : ""));
  if (!summary.mode.empty()) {
    line("mode", summary.mode + (summary.mode_changes > 0
                                     ? " at the end, changed " + counted(summary.mode_changes, "time", "times")
                                     : ""));
  }
  line("alarms", alarms_text(summary.alarms));
  std::string verdicts;
  for (const auto& [verdict, count] : summary.verdicts) {
    verdicts += fmt::format("{}{} {}", verdicts.empty() ? ": " : ", ", grouped(count), verdict);
  }
  line("reruns", grouped(summary.worth.reruns) + verdicts);
  line(summary.watch_only ? "would-be recoveries" : "recoveries", recoveries_text(summary.recoveries));
  line("denials", grouped(summary.denials));
  line("share in recovery",
       fmt::format("mean {}, peak {} ({})", percent_text(summary.share.mean), percent_text(summary.share.peak),
                   counted(summary.share.most, "unit", "units")));
  if (summary.share.high) line("high precision", run::high_shares_text(*summary.share.high));
  if (summary.errors.chronic) line("chronic units", chronic_text(*summary.errors.chronic));
  if (!summary.errors.problem.empty()) line("chronic units", "not known: " + summary.errors.problem);
  line("common steps", grouped(summary.common_steps));
  line("worth", worth_text(summary.worth));
  if (summary.dropped > 0) line("journal", counted(summary.dropped, "line", "lines") + " could not be written");
  if (summary.torn) line("journal", "its last line is torn and was skipped");
  return lines;
}

std::vector<std::string> recovery_lines(const Story& story) {
  if (story.audit.recoveries.empty()) return {};
  std::vector<std::string> lines = audit_lines(story.audit, story.recoveries);
  lines.push_back("  " + audit_text(story.audit));
  lines.push_back("  " + audit_method_text());
  return lines;
}

std::vector<std::string> episode_lines(const Episode& episode, const StorySummary& summary) {
  std::vector<std::string> lines{step_text(episode) + ": " + head_of(episode)};
  const auto add = [&](const std::string& text) {
    if (!text.empty()) lines.push_back("    " + text);
  };
  add(risks_text(episode));
  for (const io::JournalTrial& trial : episode.reruns) add(rerun_text(trial));
  if (episode.kind != EpisodeKind::recovery) return lines;
  const std::size_t named = std::min(kMostInText, episode.admitted.size());
  for (std::size_t i = 0; i < named; ++i) add(admission_text(episode.admitted[i], summary.watch_only));
  if (episode.admitted_count > named) add(fmt::format("and {} more units", grouped(episode.admitted_count - named)));
  if (!episode.denied.empty()) add("denied for want of room: " + denied_text(episode));
  return lines;
}

}  // namespace gnmr::report
