// SPDX-License-Identifier: Apache-2.0
// Whether recoveries and trials help at all: where none did over a span, the controller should only watch.
//
// Goals: resumable. Non-goals: the mode itself (supervisor.h).
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>

namespace gnmr::run {

/// What the self-audit depends on between steps.
struct SelfAuditState {
  std::deque<std::pair<std::int64_t, bool>> occasions = {};  // steps in which it acted, and whether that helped
  std::int64_t disarm_step = 0;                              // the first in which it only watches; 0: none
  std::string disarm_why = {};
};

/// Counts what helped.
class SelfAudit {
 public:
  /// `disarm_after`: steps without any help; 0: never.
  explicit SelfAudit(std::int64_t disarm_after) : disarm_after_(disarm_after) {}

  /// One more decided step that was in force; `helped` is none where nothing was done. The text says why to disarm.
  std::optional<std::string> add(std::int64_t step, std::optional<bool> helped);

  /// Disarms from that step on, unless an earlier one is set.
  void disarm_at(std::int64_t step, const std::string& why);

  /// Why the step that begins is only watched; none where it is not.
  std::optional<std::string> due(std::int64_t step) const;

  /// Starts afresh.
  void clear() {
    state_.occasions.clear();
    state_.disarm_step = 0;
  }

  const SelfAuditState& state() const { return state_; }
  void restore(SelfAuditState state) { state_ = std::move(state); }

 private:
  std::int64_t disarm_after_;
  SelfAuditState state_;
};

}  // namespace gnmr::run
