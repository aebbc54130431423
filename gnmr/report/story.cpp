// SPDX-License-Identifier: Apache-2.0
#include "gnmr/report/story.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <unordered_map>

#include "gnmr/io/glob.h"
#include "gnmr/report/number_format.h"
#include "gnmr/report/run_facts.h"

namespace gnmr::report {
namespace {

double severity_of(const io::JournalEvent& event) {
  const double severity = event.severity.value_or(0);
  return std::isnan(severity) ? std::numeric_limits<double>::infinity() : severity;
}

template <typename Item>
void cut(std::vector<Item>& items) {
  if (items.size() > kMostListed) items.resize(kMostListed);
}

// The unit with the largest excess comes first, so that it is shown whatever is cut.
io::JournalTrial with_short_lists(io::JournalTrial trial) {
  const std::size_t worst = worst_unit(trial);
  const auto shorten = [worst](auto& items) {
    if (worst < items.size()) std::swap(items[0], items[worst]);
    cut(items);
  };
  shorten(trial.units);
  shorten(trial.errors);
  shorten(trial.excesses);
  shorten(trial.places);
  return trial;
}

/// Classes of weight, far enough apart that severities do not cross them.
double weight_of(const Episode& episode) {
  constexpr double kClass = 1e6;
  double worst = episode.worst_risk ? severity_of(*episode.worst_risk) : 0;
  for (const io::JournalTrial& trial : episode.reruns)
    worst = std::max(worst, number_in(trial.excesses, 0).value_or(0));
  for (const Admission& admission : episode.admitted) worst = std::max(worst, severity_of(admission.event));
  const double within = std::min(worst, kClass / 2);
  switch (episode.kind) {
    case EpisodeKind::mode:
    case EpisodeKind::resume:
      return 9 * kClass;
    case EpisodeKind::note:
      return 8 * kClass;
    case EpisodeKind::common:
      return 2 * kClass + within;
    case EpisodeKind::denied:
      return kClass + within;
    case EpisodeKind::recovery:
      break;
  }
  if (!episode.reruns.empty()) return (episode.reruns.front().verdict == "common" ? 5 : 6) * kClass + within;
  const bool odd = std::any_of(episode.admitted.begin(), episode.admitted.end(), [](const Admission& admission) {
    return admission.relapse || admission.recovery.end == RecoveryEnd::futile;
  });
  return (odd ? 4 : 3) * kClass + within;
}

class StoryBuilder {
 public:
  StoryBuilder(const RunFiles& run, const StorySettings& settings)
      : run_(run), settings_(settings), journal_(*run.journal) {
    if (journal_.header) {
      lock_steps_ = static_cast<std::uint64_t>(journal_.header->options.lock_steps);
      lag_ = journal_.header->options.lag;
    }
    for (std::size_t unit = 0; unit < run.history.units.size(); ++unit) index_.emplace(run.history.units[unit], unit);
    for (const Recovery& recovery : run.history.recoveries) {
      recoveries_.emplace(std::pair(recovery.first_step, recovery.unit), &recovery);
    }
  }

  void build(Story& story) {
    summarise(story.summary);
    for (const io::JournalStepEntry& entry : journal_.steps) take(entry, story.summary);
    for (Episode& episode : episodes_) episode.weight = weight_of(episode);
    add_remarks();
    choose(story);
    choose_recoveries(story);
  }

 private:
  void summarise(StorySummary& summary) const {
    const RecoveryHistory& history = run_.history;
    summary.name = run_.info && !run_.info->label.empty() ? run_.info->label : run_.name;
    summary.steps = journal_.steps.size();
    if (!journal_.steps.empty()) {
      summary.first_step = journal_.steps.front().number;
      summary.last_step = journal_.steps.back().number;
    }
    summary.units = history.units.size();
    summary.budget = history.budget;
    summary.watch_only = watched_only(run_);
    if (!journal_.modes.empty()) summary.mode = to_string(journal_.modes.back().mode);
    for (std::size_t i = 1; i < journal_.modes.size(); ++i) {
      summary.mode_changes += journal_.modes[i].mode != journal_.modes[i - 1].mode ? 1U : 0U;
    }
    summary.recoveries.all = history.recoveries.size();
    for (const Recovery& recovery : history.recoveries) {
      summary.recoveries.futile += recovery.end == RecoveryEnd::futile ? 1U : 0U;
      summary.recoveries.open += recovery.end == RecoveryEnd::open ? 1U : 0U;
      summary.recoveries.standing += recovery.standing ? 1U : 0U;
    }
    summary.denials = history.denied_count;
    summary.common_steps = history.common_steps;
    summary.share = recovery_share(history);
    summary.share.high = high_shares(run_);
    summary.errors = {.chronic = run_.chronic, .problem = run_.errors_problem};
    summary.worth = rerun_worth(journal_, run_.metrics ? &*run_.metrics : nullptr);
    summary.resumes = journal_.resumes.size();
    summary.dropped = journal_.dropped;
    summary.torn = journal_.torn;
  }

  void take(const io::JournalStepEntry& entry, StorySummary& summary) {
    ++decision_;
    const std::uint64_t risks = entry.step ? entry.step->risks : 0;
    summary.alarms.risks += risks;
    summary.alarms.steps += risks > 0 || !entry.trials.empty() ? 1U : 0U;
    for (const io::JournalTrial& trial : entry.trials) count_verdict(trial, summary);
    if (entry.step && entry.step->alarm == "dismissed") ++summary.alarms.dismissed;
    if (entry.step && entry.step->alarm == "spent") ++summary.alarms.spent;
    if (entry.step && entry.step->capped) ++summary.alarms.capped;
    const auto has = [&](io::JournalEventKind kind) {
      return std::any_of(entry.events.begin(), entry.events.end(),
                         [&](const io::JournalEvent& event) { return event.event == kind; });
    };
    const bool common = entry.step && entry.step->common;
    if (!entry.trials.empty() || has(io::JournalEventKind::admitted)) {
      begin(EpisodeKind::recovery, entry.number);
    } else if (common) {
      begin_or_go_on(EpisodeKind::common, entry.number);
    } else if (has(io::JournalEventKind::denied)) {
      begin_or_go_on(EpisodeKind::denied, entry.number);
    } else {
      current_ = nullptr;
    }
    if (current_ != nullptr) fill(*current_, entry, risks, summary);
    for (const io::JournalEvent& event : entry.events) {
      if (event.event == io::JournalEventKind::released) released_[event.unit] = {decision_, entry.number};
    }
  }

  static void count_verdict(const io::JournalTrial& trial, StorySummary& summary) {
    const std::string& name = trial.rerun == "replay" ? trial.rerun : trial.verdict;
    auto found = std::find_if(summary.verdicts.begin(), summary.verdicts.end(),
                              [&](const auto& verdict) { return verdict.first == name; });
    if (found == summary.verdicts.end()) found = summary.verdicts.insert(found, {name, 0});
    ++found->second;
  }

  void begin(EpisodeKind kind, std::int64_t step) {
    episodes_.push_back({.kind = kind, .first_step = step, .last_step = step});
    current_ = &episodes_.back();
  }

  void begin_or_go_on(EpisodeKind kind, std::int64_t step) {
    if (current_ == nullptr || current_->kind != kind) begin(kind, step);
    current_->last_step = step;
  }

  void fill(Episode& episode, const io::JournalStepEntry& entry, std::uint64_t risks, StorySummary& summary) {
    if (!settings_.unit_glob.empty()) episode.is_asked_for = episode.is_asked_for || has_asked_unit(entry);
    episode.risks = std::max(episode.risks, risks);
    for (const io::JournalTrial& trial : entry.trials) {
      episode.outliers = std::max<std::uint64_t>(episode.outliers, trial.units.size() + trial.left_out);
      episode.reruns.push_back(with_short_lists(trial));
    }
    episode.denied_count += io::denied_in(entry);
    for (const io::JournalEvent& event : entry.events) {
      if (event.event == io::JournalEventKind::risk) {
        if (!episode.worst_risk || severity_of(event) > severity_of(*episode.worst_risk)) episode.worst_risk = event;
      } else if (event.event == io::JournalEventKind::admitted) {
        Admission admission = admission_of(event, entry);
        ++episode.admitted_count;
        summary.recoveries.by_error += admission.by_error ? 1U : 0U;
        summary.recoveries.relapses += admission.relapse ? 1U : 0U;
        if (episode.admitted.size() < kMostListed) episode.admitted.push_back(std::move(admission));
      } else if (event.event == io::JournalEventKind::denied) {
        const bool listed = std::find(episode.denied.begin(), episode.denied.end(), event.unit) != episode.denied.end();
        if (!listed && episode.denied.size() < kMostListed) episode.denied.push_back(event.unit);
      }
    }
  }

  Admission admission_of(const io::JournalEvent& event, const io::JournalStepEntry& entry) const {
    Admission admission{.event = event};
    admission.by_error = !(severity_of(event) > 1) ||
                         std::any_of(entry.trials.begin(), entry.trials.end(), [&](const io::JournalTrial& trial) {
                           return std::find(trial.units.begin(), trial.units.end(), event.unit) != trial.units.end();
                         });
    const std::size_t unit = index_.at(event.unit);
    const std::int64_t first = saturating_add(entry.number, 1 + lag_);
    const auto found = recoveries_.find({first, unit});
    admission.recovery = found != recoveries_.end() ? *found->second : Recovery{unit, first, first, RecoveryEnd::open};
    const auto released = released_.find(event.unit);
    // Steps without a sample do not count for a relapse; the journal does not have them, but the lock is doubled.
    admission.relapse =
        event.left > lock_steps_ || (released != released_.end() && decision_ - released->second.first <= lock_steps_);
    if (admission.relapse && released != released_.end()) admission.released_before = released->second.second;
    return admission;
  }

  static std::int64_t saturating_add(std::int64_t step, std::int64_t steps) {
    return step > std::numeric_limits<std::int64_t>::max() - steps ? step : step + steps;
  }

  void add_remarks() {
    constexpr std::int64_t kStart = std::numeric_limits<std::int64_t>::min();
    const auto add = [&](EpisodeKind kind, std::int64_t step, std::string text) {
      episodes_.push_back({.kind = kind, .first_step = step, .last_step = step, .text = std::move(text)});
      episodes_.back().weight = weight_of(episodes_.back());
    };
    for (const io::JournalResume& resume : journal_.resumes) add(EpisodeKind::resume, resume.step, {});
    for (const io::JournalMode& mode : journal_.modes) {
      add(EpisodeKind::mode, mode.after_step.value_or(kStart), mode_text(mode));
    }
    for (const io::JournalNote& note : journal_.notes) {
      std::string text = note.text;
      if (note.dropped > 0) text = counted(note.dropped, "line") + " could not be written before this";
      add(EpisodeKind::note, note.after_step.value_or(kStart), text);
    }
    // Modes and notes came after the step that they stand beside, a resume before it.
    const auto place = [](const Episode& episode) {
      const int order = episode.kind == EpisodeKind::resume ? 0 : episode.text.empty() ? 1 : 2;
      return std::pair(episode.first_step, order);
    };
    std::stable_sort(episodes_.begin(), episodes_.end(),
                     [&](const Episode& a, const Episode& b) { return place(a) < place(b); });
  }

  /// Whether a step has a unit that was asked for, listed or not.
  bool has_asked_unit(const io::JournalStepEntry& entry) const {
    const auto fits = [&](const std::string& name) { return io::glob_matches(settings_.unit_glob, name); };
    return std::any_of(entry.events.begin(), entry.events.end(),
                       [&](const io::JournalEvent& event) { return fits(event.unit); }) ||
           std::any_of(entry.trials.begin(), entry.trials.end(), [&](const io::JournalTrial& trial) {
             return std::any_of(trial.units.begin(), trial.units.end(), fits);
           });
  }

  void choose(Story& story) {
    std::erase_if(episodes_, [&](const Episode& episode) {
      if (settings_.from_step && episode.last_step < *settings_.from_step) return true;
      if (settings_.to_step && episode.first_step > *settings_.to_step) return true;
      return !settings_.unit_glob.empty() && !episode.is_asked_for;
    });
    story.episode_count = episodes_.size();
    if (settings_.limit > 0 && episodes_.size() > settings_.limit) {
      std::vector<double> weights;
      for (const Episode& episode : episodes_) weights.push_back(episode.weight);
      const auto last = weights.begin() + static_cast<std::ptrdiff_t>(settings_.limit - 1);
      std::nth_element(weights.begin(), last, weights.end(), std::greater<>());
      const double least = *last;
      auto equals = settings_.limit - static_cast<std::size_t>(std::count_if(
                                          episodes_.begin(), episodes_.end(),
                                          [&](const Episode& episode) { return episode.weight > least; }));
      std::erase_if(episodes_, [&](const Episode& episode) {
        if (episode.weight != least) return episode.weight < least;
        return equals == 0 || equals-- == 0;
      });
    }
    story.episodes = std::move(episodes_);
  }

  void choose_recoveries(Story& story) const {
    story.audit = audit_run(run_);
    std::vector<RecoveryAudit> asked = story.audit.recoveries;
    std::erase_if(asked, [&](const RecoveryAudit& one) {
      if (settings_.from_step && one.recovery.last_step < *settings_.from_step) return true;
      if (settings_.to_step && one.recovery.admitted_step.value_or(one.recovery.first_step) > *settings_.to_step) {
        return true;
      }
      return !settings_.unit_glob.empty() && !io::glob_matches(settings_.unit_glob, one.unit);
    });
    story.recovery_count = asked.size();
    story.recoveries = costliest(std::move(asked), settings_.limit);
  }

  const RunFiles& run_;
  const StorySettings& settings_;
  const io::Journal& journal_;
  std::uint64_t lock_steps_ = static_cast<std::uint64_t>(Options{}.lock_steps);
  std::int64_t lag_ = 0;
  std::unordered_map<std::string, std::size_t> index_;
  std::map<std::pair<std::int64_t, std::size_t>, const Recovery*> recoveries_;
  std::unordered_map<std::string, std::pair<std::uint64_t, std::int64_t>> released_;  // decision and step
  std::vector<Episode> episodes_;
  Episode* current_ = nullptr;  // the last of them, while it goes on
  std::uint64_t decision_ = 0;
};

}  // namespace

std::string_view to_string(EpisodeKind kind) {
  static constexpr std::array<std::string_view, 6> kNames{"recovery", "common", "denied", "mode", "resume", "note"};
  return kNames[static_cast<std::size_t>(kind)];
}

Story make_story(const RunFiles& run, const StorySettings& settings) {
  Story story;
  StoryBuilder(run, settings).build(story);
  return story;
}

}  // namespace gnmr::report
