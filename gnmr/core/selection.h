// SPDX-License-Identifier: Apache-2.0
// Who may ask for recovery, and what protects the update: section "Report" of docs/algorithm.md, points 2 to 6.
//
// Goals: one place that knows selectors and guards. Non-goals: budget and locks (budget.h), batches (step_planner.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gnmr/core/budget.h"
#include "gnmr/core/error_history.h"
#include "gnmr/core/norm_signals.h"
#include "gnmr/core/options.h"
#include "gnmr/core/step.h"

namespace gnmr {

/// The selector in force: never `automatic`. Throws `Error` for one that needs reruns where there can be none.
Selector selector_in_force(const Options& options, const Backend& backend);

/// The guard in force; throws `Error` likewise.
Guard guard_in_force(const Options& options, const Backend& backend);

/// What norms and errors of a step ask for, before its decision.
struct Request {
  bool alarmed = false;
  bool dismissed = false;
  bool spent = false;
  bool wants_trial = false;
  bool wants_replay = false;  // if a unit is admitted that ran low
  bool holds = false;         // guard `skip`, where there is no trial
  bool clips = false;         // guard `clip`, where there is no trial
};

/// Which of the errors above their limits ask for something: `clear` ones by more than the patrol's noise.
enum class ErrorsThatAsk : std::uint8_t { all, clear, infinite };

/// Candidates and request of one step. The objects that it looks at must outlive it.
class Selection {
 public:
  Selection(Selector selector, Guard guard, const NormSignals& signals, const ErrorHistory& errors,
            const Budget& budget);

  Selector selector() const { return selector_; }
  Guard guard() const { return guard_; }

  /// Takes the units with errors above their limits (nothing is asked of the norms yet).
  void find_candidates(std::span<const Finding> findings, ErrorsThatAsk asking);

  /// Chooses who decides and what the step asks for. `may_rerun`: a rerun is within the limit and not forbidden.
  /// `doubt`: risks by norms count above this.
  const Request& choose(bool may_rerun, std::uint32_t doubt);

  /// What was chosen last.
  const Request& request() const { return request_; }

  /// The candidates of the decision. To be called after releases; `asking` has the same units, ascending.
  std::span<Candidate> candidates();
  std::span<const UnitIndex> asking() const { return asking_; }

  /// Whether the decision is about a common step.
  bool is_common() const;

  /// From here on no unit asks.
  void ask_nobody();

  /// From here on those units ask that `find_candidates` was given.
  void ask_by_errors() { basis_ = Basis::errors; }

  /// Whether a free unit is at risk by its norm, and the risk counts in this doubt; 1: every risk counts.
  bool has_free_risk(std::uint32_t doubt = 1) const;

  /// Whether a unit, free or not, has a norm that is not finite.
  bool has_non_finite_risk() const { return signals_.alarm().sampled > signals_.alarm().finite; }

  /// Whether a unit with an error above its limit is free.
  bool has_free_finding() const { return has_free_finding_; }

  /// Whether a trial could send a unit to recovery, or saves weights from a norm that is not finite.
  bool trial_pays() const;

  /// Guard `clip`: a coefficient per unit.
  void set_clip(const NormSpan& norms, std::vector<double>& clip) const;

 private:
  enum class Basis : std::uint8_t { nobody, norms, errors };

  bool is_complete() const;
  void choose_basis();

  Selector selector_;
  Guard guard_;
  const NormSignals& signals_;
  const ErrorHistory& errors_;
  const Budget& budget_;
  Basis basis_ = Basis::nobody;
  bool has_free_finding_ = false;
  std::uint32_t doubt_ = 1;
  std::vector<Candidate> by_errors_;  // free units with an error above its limit
  std::vector<UnitIndex> guarded_;    // free units that ask, before the decision
  std::vector<Candidate> candidates_;
  std::vector<UnitIndex> asking_;
  Request request_;
};

}  // namespace gnmr
