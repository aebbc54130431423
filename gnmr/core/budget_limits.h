// SPDX-License-Identifier: Apache-2.0
// The limits on recoveries (`max_o`, `max_cost`, `group_max`), and how much of them is in use.
//
// Goals: a check or a change touches one unit. Non-goals: who should be in recovery (budget.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gnmr/core/options.h"
#include "gnmr/core/types.h"

namespace gnmr {

/// Units that take up room, and what is left.
class BudgetLimits {
 public:
  /// Throws `Error` where no unit fits under the cost limit, or the total cost is too large.
  BudgetLimits(const std::vector<Unit>& units, const Options& options);

  /// Whether the unit has room beside those that take it up now.
  bool fits(UnitIndex unit) const { return fits_without(unit, {}); }

  /// The same if these others, which take up room, did not.
  bool fits_without(UnitIndex unit, std::span<const UnitIndex> others) const;

  /// Whether some limit that the unit counts under is exceeded.
  bool is_exceeded_for(UnitIndex unit) const;

  void take(UnitIndex unit);
  void give_back(UnitIndex unit);

  std::int64_t cost_of(UnitIndex unit) const { return unit_cost_[unit]; }

  /// Units that take up room.
  std::uint32_t count() const { return count_; }
  std::int64_t cost() const { return cost_; }

  std::uint32_t max_units() const { return max_units_; }
  std::int64_t max_cost() const { return max_cost_; }

  /// Of all units that are not forced.
  std::int64_t total_cost() const { return total_cost_; }
  std::uint32_t candidates() const { return candidates_; }

 private:
  bool shares_group(UnitIndex unit, UnitIndex other) const;

  static constexpr std::uint32_t kNoGroup = UINT32_MAX;

  std::uint32_t max_units_ = 0;
  std::int64_t max_cost_ = 0;
  std::uint32_t group_max_;
  std::uint32_t candidates_ = 0;
  std::int64_t total_cost_ = 0;
  std::vector<std::int64_t> unit_cost_;
  std::vector<std::uint32_t> unit_group_;

  std::uint32_t count_ = 0;
  std::int64_t cost_ = 0;
  std::vector<std::uint32_t> group_count_;
};

}  // namespace gnmr
