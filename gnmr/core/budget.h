// SPDX-License-Identifier: Apache-2.0
// Who is in recovery, for how long, and who may join: section "Decision" of docs/algorithm.md, points 2 to 5, "Reviews"
// of standing recoveries, and "Cap on high precision".
//
// Goals: the budget is a hard limit; nothing here looks at all units in a step, only at those in recovery and those at
// risk; no allocation after construction.
// Non-goals: why a unit is at risk (history.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gnmr/core/budget_limits.h"
#include "gnmr/core/error_levels.h"
#include "gnmr/core/high_bucket.h"
#include "gnmr/core/history.h"
#include "gnmr/core/options.h"
#include "gnmr/core/state.h"
#include "gnmr/core/types.h"

namespace gnmr {

/// Recoveries and the limits that they stay within.
class Budget {
 public:
  /// Throws `Error` as the limits do.
  Budget(const std::vector<Unit>& units, const Options& options);

  /// Ages every recovery by one step and releases those that are over. `history` has the step committed. `claims`: in a
  /// review, those of all units; empty: no review.
  void release(History& history, bool common, const StandingClaims& claims) {
    release(history, common, /*has_samples=*/true, claims);
  }

  /// The same for a step in which no unit has a sample; `history` has not seen it.
  void release_without_samples(History& history) { release(history, /*common=*/false, /*has_samples=*/false, {}); }

  /// Whether the unit could be admitted if there were room.
  bool is_candidate(UnitIndex unit) const {
    return in_recovery_[unit] == 0 && forced_[unit] == 0 && wait_until_[unit] <= decisions_;
  }

  /// Whether acute recoveries with more than so many steps left have all places; never where there is none.
  bool is_full_for(std::uint32_t steps) const;

  bool is_in_recovery(UnitIndex unit) const { return in_recovery_[unit] != 0; }

  /// Admits candidates, most severe first, as far as the limits allow; reorders them. `asking`: the same units,
  /// ascending. In a review it then admits units to standing recovery.
  void admit(std::span<Candidate> candidates, std::span<const UnitIndex> asking, const History& history,
             const StandingClaims& claims);

  std::span<const UnitIndex> recovered() const { return recovered_; }
  std::span<const UnitIndex> admitted() const { return admitted_; }
  std::span<const UnitIndex> denied() const { return denied_; }
  std::span<const UnitIndex> futile() const { return futile_; }
  std::span<const UnitIndex> released() const { return released_; }
  std::span<const UnitIndex> standing() const { return standing_; }
  std::span<const UnitIndex> newly_standing() const { return newly_standing_; }
  std::span<const UnitIndex> filling() const { return filling_; }

  /// Whether the cap on high precision denied a unit that had room otherwise.
  bool was_capped() const { return bucket_.was_refused(); }

  /// Whether one more rerun can be paid for, where so many are to come besides.
  bool can_pay_rerun(std::uint32_t to_come = 0) const { return bucket_.affords(limits_.total_cost(), to_come + 1); }

  /// A trial, to be paid for before the decision of its step.
  void pay_trial() { bucket_.take_at_next(limits_.total_cost()); }

  /// A replay at once, after the decision of its step.
  void pay_replay() { bucket_.take_now(limits_.cost()); }

  /// The next decision leaves enough for so many reruns.
  void set_aside(std::uint32_t reruns) { bucket_.set_aside(reruns); }

  /// Decisions until the lock is over; of a standing recovery, until the next review.
  std::uint32_t steps_left(UnitIndex unit) const;
  const BudgetLimits& limits() const { return limits_; }
  const HighBucket& bucket() const { return bucket_; }
  std::uint64_t decisions() const { return decisions_; }

  /// Copies the state of one unit out.
  void save_unit(UnitIndex unit, const History& history, UnitState& state) const;

  /// Takes over one unit; units come ascending, `finish_restore` follows. `may_stand`: there are standing recoveries.
  void restore_unit(UnitIndex unit, const History& history, const UnitState& state, bool may_stand);

  /// Releases what no longer fits; returns the units, ascending.
  std::vector<UnitIndex> finish_restore(const History& history, std::uint64_t decisions, const HighBucketState& bucket);

 private:
  struct Recovery {
    UnitIndex unit;
    std::uint32_t left;   // of the lock
    std::uint32_t steps;  // in recovery so far
    bool sampled;         // since admission
    RiskKind kind;
    double key = 0;  // of a standing one, which has no lock

    bool is_standing() const { return gnmr::is_standing(kind); }
  };
  using Place = std::vector<Recovery>::iterator;

  void release(History& history, bool common, bool has_samples, const StandingClaims& claims);
  bool lock_is_over(Recovery& recovery, const History& history, bool has_samples);
  static bool has_lost_claim(Recovery& recovery, const StandingClaims& claims);
  void count_promises(std::uint32_t steps_over);
  bool fits(UnitIndex unit, RiskKind kind) const;
  bool is_paid_for(UnitIndex unit, RiskKind kind, std::int64_t freed = 0) const;
  bool make_room(UnitIndex unit, RiskKind kind, const History& history);
  void admit_standing(const StandingClaims& claims, const History& history);
  bool replace_standing(UnitIndex unit, const StandingClaim& claim, const History& history);
  void enter(const Recovery& recovery);
  void leave(const Recovery& recovery, const History& history);
  void end(Place recovery, const History& history);
  Place least_standing(RiskKind kind);
  std::uint32_t lock_for(UnitIndex unit, const History& history) const;
  void list_recovered();
  const Recovery* recovery_of(UnitIndex unit) const;
  static bool less_urgent(const Candidate& a, const Candidate& b);

  Options options_;
  BudgetLimits limits_;
  HighBucket bucket_;
  std::vector<std::uint8_t> forced_;

  std::uint64_t decisions_ = 0;
  std::vector<Recovery> recoveries_;  // ascending after each decision
  std::vector<std::uint8_t> in_recovery_;
  std::vector<std::uint8_t> was_released_;
  std::vector<std::uint32_t> last_lock_;
  std::vector<std::uint32_t> release_mark_;  // History::sampled_steps at the release
  std::vector<std::uint64_t> wait_until_;    // first decision in which it may be a candidate again

  std::vector<UnitIndex> recovered_, admitted_, denied_, futile_, released_, standing_, newly_standing_, filling_;
  std::vector<UnitIndex> others_;  // whose place may be taken, while room is looked for
};

}  // namespace gnmr
