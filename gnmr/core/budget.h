// SPDX-License-Identifier: Apache-2.0
// Who is in recovery, for how long, and who may join: section "Decision" of docs/algorithm.md, points 2 to 5.
//
// Goals: the budget is a hard limit; nothing here looks at all units in a step, only at those in recovery and those at
// risk; no allocation after construction.
// Non-goals: why a unit is at risk (history.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gnmr/core/history.h"
#include "gnmr/core/options.h"
#include "gnmr/core/state.h"
#include "gnmr/core/types.h"

namespace gnmr {

/// Recoveries and the limits that they stay within.
class Budget {
 public:
  /// Throws `Error` where no unit fits under the cost limit, or the total cost is too large.
  Budget(const std::vector<Unit>& units, const Options& options);

  /// Ages every recovery by one step and releases those that are over. `history` has the step committed.
  void release(History& history, bool common) { release(history, common, /*has_samples=*/true); }

  /// The same for a step in which no unit has a sample; `history` has not seen it.
  void release_without_samples(History& history) { release(history, /*common=*/false, /*has_samples=*/false); }

  /// Whether the unit could be admitted if there were room.
  bool is_candidate(UnitIndex unit) const {
    return in_recovery_[unit] == 0 && forced_[unit] == 0 && wait_until_[unit] <= decisions_;
  }

  bool is_in_recovery(UnitIndex unit) const { return in_recovery_[unit] != 0; }

  /// Admits candidates, most severe first, as far as the limits allow; reorders them. `asking`: the same units,
  /// ascending.
  void admit(std::span<Candidate> candidates, std::span<const UnitIndex> asking, const History& history);

  std::span<const UnitIndex> recovered() const { return recovered_; }
  std::span<const UnitIndex> admitted() const { return admitted_; }
  std::span<const UnitIndex> denied() const { return denied_; }
  std::span<const UnitIndex> futile() const { return futile_; }
  std::span<const UnitIndex> released() const { return released_; }

  std::uint32_t steps_left(UnitIndex unit) const;
  std::uint32_t max_units() const { return max_units_; }
  std::int64_t max_cost() const { return max_cost_; }
  std::int64_t total_cost() const { return total_cost_; }
  std::int64_t cost() const { return cost_; }
  std::uint64_t decisions() const { return decisions_; }

  /// Copies what is remembered of one unit out.
  void save_unit(UnitIndex unit, const History& history, UnitState& state) const;

  /// Takes over one unit; units come ascending, `finish_restore` follows.
  void restore_unit(UnitIndex unit, const History& history, const UnitState& state);

  /// Releases what no longer fits; returns the units, ascending.
  std::vector<UnitIndex> finish_restore(const History& history, std::uint64_t decisions);

 private:
  struct Recovery {
    UnitIndex unit;
    std::uint32_t left;
    std::uint32_t steps;  // in recovery so far
    bool sampled;         // since admission
    RiskKind kind;
  };

  void release(History& history, bool common, bool has_samples);
  bool fits(UnitIndex unit) const;
  void enter(const Recovery& recovery);
  void leave(UnitIndex unit, const History& history);
  std::uint32_t lock_for(UnitIndex unit, const History& history) const;
  void list_recovered();
  const Recovery* recovery_of(UnitIndex unit) const;
  static bool less_urgent(const Candidate& a, const Candidate& b);

  static constexpr std::uint32_t kNoGroup = UINT32_MAX;

  Options options_;
  std::uint32_t max_units_ = 0;
  std::int64_t max_cost_ = 0;
  std::int64_t total_cost_ = 0;
  std::vector<std::int64_t> unit_cost_;
  std::vector<std::uint32_t> unit_group_;
  std::vector<std::uint8_t> forced_;

  std::uint64_t decisions_ = 0;
  std::int64_t cost_ = 0;
  std::vector<std::uint32_t> group_count_;
  std::vector<Recovery> recoveries_;  // ascending
  std::vector<std::uint8_t> in_recovery_;
  std::vector<std::uint8_t> was_released_;
  std::vector<std::uint32_t> last_lock_;
  std::vector<std::uint32_t> release_mark_;  // History::sampled_steps at the release
  std::vector<std::uint64_t> wait_until_;    // first decision in which it is no longer passed over

  std::vector<UnitIndex> recovered_, admitted_, denied_, futile_, released_;
};

}  // namespace gnmr
