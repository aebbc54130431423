// SPDX-License-Identifier: Apache-2.0
#include "gnmr/core/budget_limits.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <unordered_map>

#include "gnmr/core/error.h"

namespace gnmr {
namespace {

constexpr std::int64_t kMaxTotalCost = std::int64_t{1} << 53;

std::uint32_t unit_limit(double max_o, std::size_t candidates) {
  if (max_o == 0 || max_o >= 1) return static_cast<std::uint32_t>(max_o);
  return static_cast<std::uint32_t>(std::max(1.0, std::floor(max_o * static_cast<double>(candidates))));
}

std::int64_t cost_limit(double max_cost, std::int64_t total) {
  if (max_cost == 1.0) return total;
  return static_cast<std::int64_t>(std::floor(max_cost * static_cast<double>(total)));
}

}  // namespace

BudgetLimits::BudgetLimits(const std::vector<Unit>& units, const Options& options)
    : group_max_(static_cast<std::uint32_t>(options.group_max)) {
  std::int64_t cheapest = 0;
  std::unordered_map<std::string, std::uint32_t> groups;
  for (const Unit& unit : units) {
    if (unit.cost < 1)
      throw Error("unit `" + unit.name + "`: expected a cost of at least 1, got " + std::to_string(unit.cost));
    unit_cost_.push_back(unit.cost);
    unit_group_.push_back(kNoGroup);
    if (!unit.group.empty()) {
      unit_group_.back() = groups.try_emplace(unit.group, static_cast<std::uint32_t>(groups.size())).first->second;
    }
    if (unit.forced) continue;
    if (unit.cost > kMaxTotalCost - total_cost_) {
      throw Error("units: expected a total cost of at most 2^53, exceeded at unit `" + unit.name + "`");
    }
    total_cost_ += unit.cost;
    cheapest = candidates_ == 0 ? unit.cost : std::min(cheapest, unit.cost);
    ++candidates_;
  }
  max_units_ = unit_limit(options.max_o, candidates_);
  max_cost_ = cost_limit(options.max_cost, total_cost_);
  if (candidates_ > 0 && cheapest > max_cost_) {
    throw Error("option `max_cost`: expected room for at least one unit, but every unit costs more than the limit of " +
                std::to_string(max_cost_));
  }
  group_count_.assign(groups.size(), 0);
}

bool BudgetLimits::shares_group(UnitIndex unit, UnitIndex other) const {
  return unit_group_[unit] != kNoGroup && unit_group_[unit] == unit_group_[other];
}

bool BudgetLimits::fits_without(UnitIndex unit, std::span<const UnitIndex> others) const {
  if (count_ - others.size() >= max_units_) return false;
  std::int64_t cost = cost_;
  for (const UnitIndex other : others) cost -= unit_cost_[other];
  if (unit_cost_[unit] > max_cost_ - cost) return false;
  const std::uint32_t group = unit_group_[unit];
  if (group_max_ == 0 || group == kNoGroup) return true;
  const auto of_group =
      std::count_if(others.begin(), others.end(), [&](UnitIndex other) { return shares_group(unit, other); });
  return group_count_[group] - static_cast<std::uint32_t>(of_group) < group_max_;
}

bool BudgetLimits::is_exceeded_for(UnitIndex unit) const {
  const std::uint32_t group = unit_group_[unit];
  const bool by_group = group_max_ > 0 && group != kNoGroup && group_count_[group] > group_max_;
  return count_ > max_units_ || cost_ > max_cost_ || by_group;
}

void BudgetLimits::take(UnitIndex unit) {
  ++count_;
  cost_ += unit_cost_[unit];
  if (unit_group_[unit] != kNoGroup) ++group_count_[unit_group_[unit]];
}

void BudgetLimits::give_back(UnitIndex unit) {
  --count_;
  cost_ -= unit_cost_[unit];
  if (unit_group_[unit] != kNoGroup) --group_count_[unit_group_[unit]];
}

}  // namespace gnmr
