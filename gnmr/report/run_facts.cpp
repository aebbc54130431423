// SPDX-License-Identifier: Apache-2.0
#include "gnmr/report/run_facts.h"

#include <algorithm>
#include <cmath>

#include "gnmr/report/number_format.h"
#include "gnmr/report/worth.h"

namespace gnmr::report {
namespace {

std::size_t final_steps(const run::Metrics& metrics) {
  return std::clamp<std::size_t>(metrics.train.size() / 10, 1, 100);
}

void add_progress(const RunFiles& run, std::vector<Fact>& facts) {
  const std::vector<run::TrainLine>& train = run.metrics->train;
  if (train.empty()) return;
  const auto done = static_cast<std::uint64_t>(std::max<std::int64_t>(train.back().step, 0));
  Fact steps{"steps", grouped(done)};
  if (run.info && run.info->steps && *run.info->steps > 0) {
    const auto planned = static_cast<std::uint64_t>(*run.info->steps);
    steps.note = done >= planned ? "all that were planned" : "of " + grouped(planned) + " planned";
  }
  facts.push_back(steps);
  double seconds = 0;
  double tokens = 0;
  for (const run::TrainLine& point : train) {
    seconds += point.seconds.value_or(0);
    tokens += static_cast<double>(point.tokens);
  }
  if (seconds > 0 && std::isfinite(seconds)) {
    facts.push_back({"time in steps", duration_text(seconds),
                     tokens > 0 ? short_count(tokens / seconds) + " tokens/s" : std::string()});
  }
}

void add_losses(const RunFiles& run, std::vector<Fact>& facts) {
  if (const auto loss = final_train_loss(*run.metrics)) {
    facts.push_back({"training loss", number_text(*loss),
                     "mean of the last " + counted(final_steps(*run.metrics), "step", "steps")});
  }
  if (run.metrics->evals.empty()) return;
  const run::EvalLine& last = run.metrics->evals.back();
  if (last.loss_high) facts.push_back({"held-out loss", number_text(*last.loss_high), "all units in high precision"});
  if (last.loss_low) facts.push_back({"held-out loss", number_text(*last.loss_low), "all units on the low path"});
}

void add_updates(const RunFiles& run, std::vector<Fact>& facts) {
  const std::vector<run::TrainLine>& train = run.metrics->train;
  const auto skipped =
      std::count_if(train.begin(), train.end(), [](const run::TrainLine& point) { return !point.applied; });
  if (train.empty()) return;
  facts.push_back({"skipped updates", grouped(static_cast<std::uint64_t>(skipped)),
                   percent_text(static_cast<double>(skipped) / static_cast<double>(train.size())) + " of the steps"});
}

void add_recoveries(const RunFiles& run, std::vector<Fact>& facts) {
  const RecoveryHistory& history = run.history;
  const auto futile = static_cast<std::uint64_t>(
      std::count_if(history.recoveries.begin(), history.recoveries.end(),
                    [](const Recovery& recovery) { return recovery.end == RecoveryEnd::futile; }));
  facts.push_back({watched_only(run) ? "recoveries it would have made" : "recoveries",
                   grouped(history.recoveries.size()),
                   futile > 0 ? grouped(futile) + " of them did not help" : std::string()});
  const RecoveryShare share = recovery_share(history);
  if (!history.units.empty() && !history.in_use.empty()) {
    facts.push_back({"time in high precision", percent_text(share.mean), "of all units in all steps"});
  }
  if (const std::optional<run::HighShares> shares = high_shares(run)) {
    facts.push_back({"high precision with reruns", percent_text(shares->total()),
                     percent_text(shares->acute) + " acute, " + percent_text(shares->standing) + " standing, " +
                         percent_text(shares->reruns) + " reruns"});
  }
  if (history.budget) {
    facts.push_back({"most units at once", grouped(share.most),
                     "the budget is " + grouped(*history.budget) + " of " + grouped(history.units.size())});
  }
  if (history.denied_count > 0) facts.push_back({"denied for want of budget", grouped(history.denied_count)});
}

void add_worth(const RunFiles& run, std::vector<Fact>& facts) {
  const RerunWorth worth = rerun_worth(*run.journal, run.metrics ? &*run.metrics : nullptr);
  if (worth.reruns == 0) return;
  facts.push_back({"steps run again", grouped(worth.reruns),
                   grouped(worth.helpful) + " helpful, " + grouped(worth.wasted) + " wasted, " +
                       grouped(worth.unlocated) + " unlocated"});
  facts.push_back({"time in reruns", duration_text(worth.seconds),
                   worth.share ? percent_text(*worth.share) + " of the time in steps" : std::string()});
}

}  // namespace

std::string mode_text(const io::JournalMode& mode) {
  std::string text;
  switch (mode.mode) {
    case Mode::armed:
      text = "Decisions are carried out";
      break;
    case Mode::watch:
      text = "Decisions are only written (watch)";
      break;
    case Mode::high:
      text = "Everything runs in high precision";
      break;
  }
  return text + (mode.why.empty() ? "." : ": " + mode.why);
}

std::optional<double> final_train_loss(const run::Metrics& metrics) {
  if (metrics.train.empty()) return std::nullopt;
  double sum = 0;
  const std::size_t count = final_steps(metrics);
  for (std::size_t i = metrics.train.size() - count; i < metrics.train.size(); ++i) sum += metrics.train[i].loss;
  return sum / static_cast<double>(count);
}

std::optional<run::HighShares> high_shares(const RunFiles& run) {
  if (!run.metrics || watched_only(run)) return std::nullopt;
  return run::high_shares(run.metrics->train, static_cast<std::int64_t>(run.history.units.size()));
}

bool watched_only(const RunFiles& run) {
  if (run.info && !run.info->controller.empty()) return run.info->controller != "gnmr";
  if (!run.journal || run.journal->modes.empty()) return false;
  return std::all_of(run.journal->modes.begin(), run.journal->modes.end(),
                     [](const io::JournalMode& mode) { return mode.mode == Mode::watch; });
}

std::string run_subtitle(const RunFiles& run) {
  if (!run.info) return {};
  const run::RunInfo& info = *run.info;
  std::string text;
  const auto add = [&](const std::string& part) {
    if (part.empty()) return;
    if (!text.empty()) text += " · ";
    text += part;
  };
  add(info.model);
  if (info.parameters > 0) add(short_count(static_cast<double>(info.parameters)) + " parameters");
  if (!info.recipe.empty()) add("recipe " + info.recipe);
  if (!info.controller.empty()) add(info.controller == "none" ? "no controller" : "controller " + info.controller);
  if (!info.faults.empty()) add("faults: " + info.faults);
  if (info.seed) add("seed " + std::to_string(*info.seed));
  if (!info.started.empty()) add("started " + info.started);
  return text;
}

std::vector<Fact> run_facts(const RunFiles& run) {
  std::vector<Fact> facts;
  if (run.metrics) {
    add_losses(run, facts);
    add_progress(run, facts);
    add_updates(run, facts);
  }
  if (run.journal) {
    add_recoveries(run, facts);
    add_worth(run, facts);
  }
  if (run.chronic && run.chronic->reviews > 0) {
    facts.push_back({"chronic units", grouped(run.chronic->units.size()), "their errors are always far above others'"});
  }
  if (run.faults) {
    facts.push_back({"injected faults", grouped(run.faults->size()), "one per unit and stretch of steps"});
  }
  return facts;
}

std::vector<std::string> run_notes(const RunFiles& run) {
  std::vector<std::string> notes;
  const auto resumed = [&](std::int64_t step) {
    const std::string note = "Resumed from a saved state; the next step was " + std::to_string(step) + ".";
    if (std::find(notes.begin(), notes.end(), note) == notes.end()) notes.push_back(note);
  };
  if (run.metrics) {
    for (const std::int64_t step : run.metrics->resumes) resumed(step);
  }
  if (!run.journal) return notes;
  for (const io::JournalResume& resume : run.journal->resumes) resumed(resume.step);
  for (const io::JournalMode& mode : run.journal->modes) notes.push_back(mode_text(mode));
  for (const io::JournalNote& note : run.journal->notes) {
    if (!note.text.empty()) notes.push_back(note.text);
  }
  if (run.history.common_steps > 0) {
    notes.push_back("In " + counted(run.history.common_steps, "step", "steps") +
                    " nearly all units were at risk at once: the cause was common (data, learning rate), and no unit "
                    "was admitted.");
  }
  return notes;
}

}  // namespace gnmr::report
