// SPDX-License-Identifier: Apache-2.0
#include "gnmr/report/worth.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <unordered_set>

#include "gnmr/report/number_format.h"

namespace gnmr::report {
namespace {

RerunOutcome outcome_by_distance(const std::optional<double>& distance) {
  if (!distance) return RerunOutcome::unmeasured;
  return *distance < io::kHelpfulDistance ? RerunOutcome::slight : RerunOutcome::helpful;
}

void count(RerunOutcome outcome, RerunWorth& worth) {
  switch (outcome) {
    case RerunOutcome::helpful:
      ++worth.helpful;
      break;
    case RerunOutcome::slight:
      ++worth.slight;
      break;
    case RerunOutcome::unmeasured:
      ++worth.unmeasured;
      break;
    case RerunOutcome::wasted:
      ++worth.wasted;
      break;
    case RerunOutcome::unlocated:
      ++worth.unlocated;
      break;
    case RerunOutcome::other:
      ++worth.other;
      break;
  }
}

void add_if_any(std::string& text, std::uint64_t number, const std::string& what) {
  if (number == 0) return;
  text += (text.empty() ? "" : ", ") + grouped(number) + " " + what;
}

}  // namespace

std::string_view to_string(RerunOutcome outcome) {
  static constexpr std::array<std::string_view, 6> kNames{"helpful", "slight",    "unmeasured",
                                                          "wasted",  "unlocated", "other"};
  return kNames[static_cast<std::size_t>(outcome)];
}

RerunOutcome outcome_of(const io::JournalTrial& trial) {
  if (trial.verdict == "numeric" || trial.rerun == "replay") return outcome_by_distance(trial.distance);
  if (trial.verdict == "common") return RerunOutcome::wasted;
  if (trial.verdict == "unlocated") return RerunOutcome::unlocated;
  return RerunOutcome::other;
}

RerunWorth rerun_worth(const io::Journal& journal, const run::Metrics* metrics) {
  RerunWorth worth;
  for (const io::JournalStepEntry& entry : journal.steps) {
    for (const io::JournalTrial& trial : entry.trials) {
      ++worth.reruns;
      if (trial.rerun == "replay") ++worth.replays;
      if (trial.applied == false) ++worth.not_applied;
      count(outcome_of(trial), worth);
      if (std::isfinite(trial.seconds)) worth.seconds += trial.seconds;
    }
  }
  if (metrics == nullptr) return worth;
  double seconds = 0;
  for (const run::TrainLine& point : metrics->train) seconds += point.seconds.value_or(0);
  if (!(seconds > 0) || !std::isfinite(seconds)) return worth;
  worth.step_seconds = seconds;
  worth.share = worth.seconds / seconds;
  return worth;
}

std::string worth_text(const RerunWorth& worth) {
  if (worth.reruns == 0) return "No step was run again, so what recovery was worth was not measured.";
  std::string outcomes;
  add_if_any(outcomes, worth.helpful, "helpful (the gradient changed by a tenth or more)");
  add_if_any(outcomes, worth.slight, "slight (its norms changed by less)");
  add_if_any(outcomes, worth.unmeasured, "of unknown worth");
  add_if_any(outcomes, worth.wasted, "wasted (the cause was common)");
  add_if_any(outcomes, worth.unlocated, "unlocated (no unit to blame)");
  add_if_any(outcomes, worth.other, "with another verdict");
  std::string text = counted(worth.reruns, "step was run again", "steps were run again");
  if (worth.replays > 0) text += " (" + counted(worth.replays, "replay", "replays") + ")";
  text += ": " + outcomes + ". That took " + duration_text(worth.seconds);
  if (worth.share) text += ", " + percent_text(*worth.share) + " of the time in steps";
  text += ".";
  if (worth.not_applied > 0) {
    text += " " + counted(worth.not_applied, "rerun", "reruns") + " made no update: not finite either.";
  }
  return text;
}

std::size_t worst_unit(const io::JournalTrial& trial) {
  const std::vector<double>& numbers = trial.excesses.empty() ? trial.errors : trial.excesses;
  const std::size_t count = std::min(numbers.size(), trial.units.size());
  std::size_t worst = 0;
  for (std::size_t i = 1; i < count; ++i) {
    if (numbers[i] > numbers[worst] || std::isnan(numbers[worst])) worst = i;
  }
  return worst;
}

std::optional<double> number_in(const std::vector<double>& numbers, std::size_t index) {
  return index < numbers.size() ? std::optional(numbers[index]) : std::nullopt;
}

std::string error_text(const io::JournalTrial& trial) {
  const std::size_t worst = worst_unit(trial);
  const std::optional<double> error = number_in(trial.errors, worst);
  if (!error) return {};
  const std::optional<double> excess = number_in(trial.excesses, worst);
  return number_text(*error, 3) + (excess ? " (" + number_text(*excess, 3) + " × limit)" : std::string());
}

std::string few_of(const std::vector<std::string>& texts, std::size_t most) {
  std::string few;
  std::unordered_set<std::string_view> seen;
  for (const std::string& text : texts) {
    if (!seen.insert(text).second || seen.size() > most) continue;
    few += (few.empty() ? "" : ", ") + text;
  }
  if (seen.size() > most) few += " and " + std::to_string(seen.size() - most) + " more";
  return few;
}

}  // namespace gnmr::report
