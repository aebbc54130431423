// SPDX-License-Identifier: Apache-2.0
#include "gnmr/report/recoveries.h"

#include <algorithm>
#include <limits>
#include <unordered_map>
#include <utility>

#include "gnmr/core/controller.h"
#include "gnmr/core/error.h"

namespace gnmr::report {
namespace {

// Steps of a damaged journal may be as large as numbers can be.
std::int64_t later(std::int64_t step, std::int64_t steps) {
  return step > std::numeric_limits<std::int64_t>::max() - steps ? step : step + steps;
}

class HistoryBuilder {
 public:
  explicit HistoryBuilder(const io::Journal& journal) : journal_(journal) {
    if (journal.header) {
      lag_ = journal.header->options.lag;
      for (const Unit& unit : journal.header->units) index_of(unit.name);
    }
  }

  RecoveryHistory build() {
    find_budget();
    for (const io::JournalStepEntry& entry : journal_.steps) {
      last_step_ = entry.number;
      if (entry.step) {
        history_.in_use.push_back({later(entry.number, 1 + lag_), entry.step->recovered});
        if (entry.step->common) ++history_.common_steps;
      }
      take_events(entry);
    }
    for (const auto& [unit, begun] : open_) {
      const std::int64_t first = later(begun.step, 1 + lag_);
      history_.recoveries.push_back(
          {unit, first, std::max(first, last_step_), RecoveryEnd::open, begun.step, begun.standing});
    }
    std::sort(history_.recoveries.begin(), history_.recoveries.end(), [](const Recovery& a, const Recovery& b) {
      return std::pair(a.first_step, a.unit) < std::pair(b.first_step, b.unit);
    });
    return std::move(history_);
  }

 private:
  struct Begun {
    std::int64_t step;
    bool standing;
  };

  std::size_t index_of(const std::string& name) {
    const auto [found, added] = index_.emplace(name, history_.units.size());
    if (added) {
      history_.units.push_back(name);
      history_.events_of_unit.push_back(0);
    }
    return found->second;
  }

  void find_budget() {
    if (!journal_.header) return;
    try {
      history_.budget = Controller(journal_.header->units, journal_.header->options, norms_only()).max_recovered();
    } catch (const Error&) {
      history_.budget.reset();  // a header that no controller can have: the report does without the line
    }
  }

  // The events of a unit in one step become one: a futile unit is released too, an admitted one was at risk.
  void take_events(const io::JournalStepEntry& entry) {
    history_.denied_count += io::denied_in(entry);
    // A decision releases before it admits, though its lines stand the other way round: a unit may be in both.
    for (const io::JournalEvent& event : entry.events) take_release(entry.number, index_of(event.unit), event.event);
    std::unordered_map<std::size_t, std::size_t> of_this_step;
    for (const io::JournalEvent& event : entry.events) {
      const std::size_t unit = index_of(event.unit);
      const bool stands = event.event == io::JournalEventKind::standing || event.event == io::JournalEventKind::filling;
      if (stands || event.event == io::JournalEventKind::admitted) open_.emplace(unit, Begun{entry.number, stands});
      if (event.event == io::JournalEventKind::denied) history_.denials.push_back({unit, entry.number});
      ++history_.events_of_unit[unit];
      const auto [found, added] = of_this_step.emplace(unit, history_.events.size());
      if (added) {
        history_.events.push_back({.step = entry.number,
                                   .unit = unit,
                                   .what = {},
                                   .ratio = event.ratio,
                                   .delta = event.delta,
                                   .fall = event.fall,
                                   .severity = event.severity});
      }
      std::string& what = history_.events[found->second].what;
      if (!what.empty()) what += ", ";
      what += to_string(event.event);
    }
  }

  void take_release(std::int64_t step, std::size_t unit, io::JournalEventKind kind) {
    if (kind == io::JournalEventKind::futile) futile_.insert_or_assign(unit, step);
    if (kind != io::JournalEventKind::released) return;
    const auto futile = futile_.find(unit);
    const bool helped = futile == futile_.end() || futile->second != step;
    Recovery recovery{.unit = unit, .end = helped ? RecoveryEnd::released : RecoveryEnd::futile};
    const auto open = open_.find(unit);
    // Where the journal begins in the middle of a recovery, so does what is shown of it.
    recovery.first_step = open == open_.end() ? journal_.steps.front().number : later(open->second.step, 1 + lag_);
    recovery.last_step = std::max(recovery.first_step, later(step, lag_));
    if (open != open_.end()) {
      recovery.admitted_step = open->second.step;
      recovery.standing = open->second.standing;
      open_.erase(open);
    }
    history_.recoveries.push_back(recovery);
  }

  const io::Journal& journal_;
  RecoveryHistory history_;
  std::int64_t lag_ = 0;
  std::int64_t last_step_ = 0;
  std::unordered_map<std::string, std::size_t> index_;
  std::unordered_map<std::size_t, Begun> open_;           // who is in recovery, and since which decision
  std::unordered_map<std::size_t, std::int64_t> futile_;  // step of the last futile event
};

}  // namespace

RecoveryHistory recovery_history(const io::Journal& journal) { return HistoryBuilder(journal).build(); }

RecoveryShare recovery_share(const RecoveryHistory& history) {
  RecoveryShare share;
  std::uint64_t unit_steps = 0;
  for (const InUse& use : history.in_use) {
    unit_steps += use.units;
    share.most = std::max(share.most, use.units);
  }
  const auto units = static_cast<double>(history.units.size());
  const double all = units * static_cast<double>(history.in_use.size());
  if (all > 0) share.mean = static_cast<double>(unit_steps) / all;
  if (units > 0) share.peak = static_cast<double>(share.most) / units;
  return share;
}

}  // namespace gnmr::report
