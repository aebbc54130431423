// SPDX-License-Identifier: Apache-2.0
// Why steps run again, in words, from the alarm to the rerun: with lag 1 that is some steps later.
//
// Goals: a run that is resumed in between still knows. Non-goals: the journal itself (run_journal.h).
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "gnmr/run/outcome_listener.h"

namespace gnmr::run {

/// Reasons that wait for their reruns.
struct WaitingReasons {
  std::map<std::int64_t, std::string> by_batch = {};  // of batches that are to run as a trial or a replay
  std::string of_call = {};                           // of a trial that was called and is not planned yet
};

/// Keeps them.
class RerunReasons : public OutcomeListener {
 public:
  /// `is_wanted` false: no reason is added.
  explicit RerunReasons(bool is_wanted) : is_wanted_(is_wanted) {}

  void begun(const Controller& controller) override;
  void reported(const ReportedRun& run) override;

  /// Of the rerun that was reported last, or is due.
  const std::string& of_rerun() const { return of_rerun_; }

  const WaitingReasons& waiting() const { return waiting_; }
  void restore(WaitingReasons waiting) { waiting_ = std::move(waiting); }

 private:
  void assign_called(const Controller& controller);

  bool is_wanted_;
  WaitingReasons waiting_;
  std::string of_rerun_;
};

}  // namespace gnmr::run
