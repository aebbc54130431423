// SPDX-License-Identifier: Apache-2.0
// Norms of a step in, signals and alarm out: section "Signals" of docs/algorithm.md.
//
// Goals: checks what callers hand in; no allocation after construction. Non-goals: what is done about a risk.
#pragma once

#include <cstdint>
#include <vector>

#include "gnmr/core/history.h"
#include "gnmr/core/options.h"
#include "gnmr/core/types.h"

namespace gnmr {

/// The histories of all units, and the step that was observed last. `units` must outlive it.
class NormSignals {
 public:
  NormSignals(const std::vector<Unit>& units, const Options& options);

  /// Throws `Error` for a wrong number of norms or a negative one.
  void check(const Observation& observation) const;

  /// Signals and alarm of a step, in place of the one that was observed before; histories do not change. Throws
  /// `Error` as `check`; then there is no observed step.
  const Alarm& observe(const Observation& observation);

  std::size_t unit_count() const { return units_.size(); }

  /// Of the last observation.
  const Alarm& alarm() const { return alarm_; }

  /// Drops the observation: no unit has signals any more.
  void discard();

  /// A unit at risk as a candidate of the selector `norms`; `index` is its place among the risks.
  Candidate candidate(std::size_t index) const;

  /// Whether a unit at risk counts in spite of a doubt; `index` likewise.
  bool counts(std::size_t index, std::uint32_t doubt) const;

  /// The signals themselves, and how the step enters them (`History::commit`).
  History& history() { return history_; }
  const History& history() const { return history_; }

 private:
  void check_sizes(const Observation& observation) const;
  [[noreturn]] void reject_norm(const Observation& observation, std::size_t unit) const;

  const std::vector<Unit>& units_;
  double common_share_;
  History history_;
  const History::Findings* findings_ = nullptr;
  Alarm alarm_;
};

}  // namespace gnmr
