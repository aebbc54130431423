// SPDX-License-Identifier: Apache-2.0
#include "gnmr/report/audit.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <unordered_map>

#include "gnmr/lab/gap.h"
#include "gnmr/report/run_facts.h"

namespace gnmr::report {
namespace {

constexpr std::size_t kFewestUsual = 5;  // steps that say what is usual

double finite_or_zero(double value) { return std::isfinite(value) ? value : 0; }

double rerun_seconds(const io::JournalStepEntry& entry) {
  double seconds = 0;
  for (const io::JournalTrial& trial : entry.trials) seconds += finite_or_zero(trial.seconds);
  return seconds;
}

std::uint64_t admissions(const io::JournalStepEntry& entry) {
  return static_cast<std::uint64_t>(
      std::count_if(entry.events.begin(), entry.events.end(),
                    [](const io::JournalEvent& event) { return event.event == io::JournalEventKind::admitted; }));
}

/// What the steps of a run took without reruns, and who was in recovery in them.
class StepTimes {
 public:
  explicit StepTimes(const RunFiles& run) : train_(run.metrics->train), history_(run.history) {
    if (run.journal->header) {
      for (const Unit& unit : run.journal->header->units) {
        costs_.push_back(std::max(static_cast<double>(unit.cost), 1.0));
      }
    }
    costs_.resize(history_.units.size(), 1);
    count_recoveries();
    std::unordered_map<std::int64_t, double> reruns;
    for (const io::JournalStepEntry& entry : run.journal->steps) {
      if (!entry.trials.empty()) reruns.emplace(entry.number, rerun_seconds(entry));
    }
    for (std::size_t i = 0; i < train_.size(); ++i) {
      const auto rerun = reruns.find(train_[i].step);
      seconds_.push_back(train_[i].seconds.value_or(NAN) - (rerun != reruns.end() ? rerun->second : 0));
      if (is_known(i) && units_[i] == 0) sound_.push_back(i);
    }
  }

  /// What high precision took in the steps of a recovery; absent where it is not known of any.
  std::optional<double> extra_seconds(const Recovery& recovery) const {
    const auto [first, end] = range_of(recovery);
    const std::optional<double> usual = usual_before(first);
    if (!usual) return {};
    std::optional<double> extra;
    for (std::size_t i = first; i < end; ++i) {
      if (!is_known(i)) continue;
      // Sums of costs beyond 2^53 are rough: no part is larger than the whole.
      const double part = costs_[recovery.unit] / std::max(cost_[i], costs_[recovery.unit]);
      extra = extra.value_or(0) + (seconds_[i] - *usual) * part;
    }
    return extra;
  }

 private:
  void count_recoveries() {
    // Differences first, sums then: a recovery may be as long as the run.
    units_.assign(train_.size() + 1, 0);
    cost_.assign(train_.size() + 1, 0);
    for (const Recovery& recovery : history_.recoveries) {
      const auto [first, end] = range_of(recovery);
      ++units_[first];
      --units_[end];
      cost_[first] += costs_[recovery.unit];
      cost_[end] -= costs_[recovery.unit];
    }
    std::partial_sum(units_.begin(), units_.end(), units_.begin());
    std::partial_sum(cost_.begin(), cost_.end(), cost_.begin());
  }

  std::pair<std::size_t, std::size_t> range_of(const Recovery& recovery) const {
    const auto by_step = [](const run::TrainLine& point, std::int64_t step) { return point.step < step; };
    const auto first = std::lower_bound(train_.begin(), train_.end(), recovery.first_step, by_step);
    const auto end = std::upper_bound(first, train_.end(), recovery.last_step,
                                      [](std::int64_t step, const run::TrainLine& point) { return step < point.step; });
    return {static_cast<std::size_t>(first - train_.begin()), static_cast<std::size_t>(end - train_.begin())};
  }

  /// A step whose time is known, and in which the journal's decisions were carried out.
  bool is_known(std::size_t index) const {
    const std::optional<std::int64_t>& recovered = train_[index].recovered;
    return std::isfinite(seconds_[index]) && (!recovered || *recovered == units_[index]);
  }

  std::optional<double> usual_before(std::size_t index) const {
    const auto end = std::lower_bound(sound_.begin(), sound_.end(), index);
    const auto count = std::min(kUsualSteps, static_cast<std::size_t>(end - sound_.begin()));
    if (count < kFewestUsual) return {};
    std::vector<double> times;
    for (auto i = end - static_cast<std::ptrdiff_t>(count); i != end; ++i) times.push_back(seconds_[*i]);
    return lab::median(std::move(times));
  }

  const std::vector<run::TrainLine>& train_;
  const RecoveryHistory& history_;
  std::vector<double> costs_;        // of units
  std::vector<std::int64_t> units_;  // in recovery, beside `train_`
  std::vector<double> cost_;         // of these
  std::vector<double> seconds_;      // without reruns
  std::vector<std::size_t> sound_;   // steps without recovery
};

/// The rerun that speaks of a unit: the one that names it, else the first.
const io::JournalTrial* rerun_of(const io::JournalStepEntry& entry, const std::string& unit) {
  for (const io::JournalTrial& trial : entry.trials) {
    if (std::find(trial.units.begin(), trial.units.end(), unit) != trial.units.end()) return &trial;
  }
  return entry.trials.empty() ? nullptr : &entry.trials.front();
}

void take_rerun(const io::JournalStepEntry& entry, RecoveryAudit& audit) {
  const io::JournalTrial* const trial = rerun_of(entry, audit.unit);
  if (trial == nullptr) return;
  audit.verdict = trial->rerun == "replay" ? trial->rerun : trial->verdict;
  audit.outcome = outcome_of(*trial);
  audit.loss = number_in(trial->losses, 0);
  audit.rerun_loss = number_in(trial->losses, 1);
  audit.distance = trial->distance;
  audit.rerun_seconds = rerun_seconds(entry) / static_cast<double>(std::max<std::uint64_t>(admissions(entry), 1));
  const auto found = std::find(trial->units.begin(), trial->units.end(), audit.unit);
  if (found == trial->units.end()) return;
  const auto index = static_cast<std::size_t>(found - trial->units.begin());
  audit.error = number_in(trial->errors, index);
  if (index < trial->places.size()) audit.place = trial->places[index];
}

/// Each rerun counts once here, however many units it admitted.
void add_reruns(const io::Journal& journal, Audit& audit) {
  for (const io::JournalStepEntry& entry : journal.steps) {
    if (entry.trials.empty()) continue;
    if (admissions(entry) == 0) {
      audit.other_reruns += entry.trials.size();
      audit.other_seconds += rerun_seconds(entry);
      continue;
    }
    audit.rerun_seconds += rerun_seconds(entry);
    for (const io::JournalTrial& trial : entry.trials) {
      const double loss = number_in(trial.losses, 0).value_or(NAN);
      const double rerun_loss = number_in(trial.losses, 1).value_or(NAN);
      if (trial.losses.size() < 2 || !std::isfinite(rerun_loss)) continue;
      if (!std::isfinite(loss)) {
        ++audit.not_finite;
        continue;
      }
      ++audit.losses;
      audit.loss_difference += loss - rerun_loss;
    }
  }
}

void add_recovery(const RecoveryAudit& recovery, Audit& audit) {
  if (recovery.outcome) ++audit.rerun;
  if (recovery.outcome == RerunOutcome::helpful) ++audit.helpful;
  if (recovery.outcome == RerunOutcome::slight) ++audit.slight;
  if (recovery.extra_seconds) ++audit.timed;
  audit.extra_seconds += recovery.extra_seconds.value_or(0);
  audit.recoveries.push_back(recovery);
}

}  // namespace

Audit audit_run(const RunFiles& run) {
  Audit audit;
  if (!run.journal || watched_only(run)) return audit;
  add_reruns(*run.journal, audit);
  std::optional<StepTimes> times;
  if (run.metrics) times.emplace(run);
  for (const Recovery& recovery : run.history.recoveries) {
    RecoveryAudit one{.unit = run.history.units[recovery.unit], .recovery = recovery};
    if (recovery.admitted_step) {
      const auto entry =
          std::lower_bound(run.journal->steps.begin(), run.journal->steps.end(), *recovery.admitted_step,
                           [](const io::JournalStepEntry& step, std::int64_t number) { return step.number < number; });
      if (entry != run.journal->steps.end()) take_rerun(*entry, one);
    }
    if (times) one.extra_seconds = times->extra_seconds(recovery);
    add_recovery(one, audit);
  }
  if (!run.metrics) return audit;
  double seconds = 0;
  for (const run::TrainLine& point : run.metrics->train) seconds += finite_or_zero(point.seconds.value_or(0));
  if (seconds > 0) audit.share = audit.seconds() / seconds;
  return audit;
}

std::vector<RecoveryAudit> costliest(std::vector<RecoveryAudit> recoveries, std::size_t most) {
  if (most == 0 || recoveries.size() <= most) return recoveries;
  std::vector<std::size_t> order(recoveries.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return recoveries[a].seconds() > recoveries[b].seconds(); });
  order.resize(most);
  std::sort(order.begin(), order.end());
  std::vector<RecoveryAudit> chosen;
  for (const std::size_t index : order) chosen.push_back(std::move(recoveries[index]));
  return chosen;
}

}  // namespace gnmr::report
