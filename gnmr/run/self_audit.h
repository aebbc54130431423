// SPDX-License-Identifier: Apache-2.0
// Whether recoveries and trials help at all: where none did over a span, the controller should only watch.
//
// Goals: resumable; a standing recovery, which answers no alarm, counts neither way. Non-goals: the mode itself
// (supervisor.h).
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gnmr/run/outcome_listener.h"

namespace gnmr::run {

/// What the self-audit depends on between steps.
struct SelfAuditState {
  std::deque<std::pair<std::int64_t, bool>> occasions = {};  // steps in which it acted, and whether that helped
  std::int64_t disarm_step = 0;                              // the first in which it only watches; 0: none
  std::string disarm_why = {};
};

/// Counts what helped.
class SelfAudit : public OutcomeListener {
 public:
  /// `disarm_after`: steps without any help; 0: never.
  explicit SelfAudit(std::int64_t disarm_after) : disarm_after_(disarm_after) {}

  void reported(const ReportedRun& run) override;

  /// With lag 0: why to watch only, by the report that came last; asked for once.
  std::optional<std::string> take_conclusion() { return std::exchange(conclusion_, std::nullopt); }

  /// With lag 1: whether the step that begins is the first that is only watched. The step after the one that was
  /// reported may be running: it stays as it is, whenever that was reported.
  bool is_due(std::int64_t step) const { return state_.disarm_step != 0 && step >= state_.disarm_step; }
  const std::string& due_why() const { return state_.disarm_why; }

  /// Starts afresh.
  void clear() {
    state_.occasions.clear();
    state_.disarm_step = 0;
  }

  const SelfAuditState& state() const { return state_; }

  /// Takes over a state, and that of the controller it was saved with.
  void restore(SelfAuditState state, const Controller& controller);

 private:
  std::optional<bool> helped(const ReportedRun& run) const;
  std::optional<std::string> add(std::int64_t step, std::optional<bool> helped);

  std::int64_t disarm_after_;
  SelfAuditState state_;
  std::vector<UnitIndex> standing_;  // in standing recovery after the last decision
  std::optional<std::string> conclusion_;
};

}  // namespace gnmr::run
