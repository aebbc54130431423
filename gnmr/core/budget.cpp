// SPDX-License-Identifier: Apache-2.0
#include "gnmr/core/budget.h"

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

Budget::Budget(const std::vector<Unit>& units, const Options& options) : options_(options) {
  std::size_t candidates = 0;
  std::int64_t cheapest = 0;
  std::unordered_map<std::string, std::uint32_t> groups;
  for (const Unit& unit : units) {
    if (unit.cost < 1)
      throw Error("unit `" + unit.name + "`: expected a cost of at least 1, got " + std::to_string(unit.cost));
    unit_cost_.push_back(unit.cost);
    forced_.push_back(unit.forced ? 1 : 0);
    unit_group_.push_back(kNoGroup);
    if (!unit.group.empty()) {
      unit_group_.back() = groups.try_emplace(unit.group, static_cast<std::uint32_t>(groups.size())).first->second;
    }
    if (unit.forced) continue;
    if (unit.cost > kMaxTotalCost - total_cost_) {
      throw Error("units: expected a total cost of at most 2^53, exceeded at unit `" + unit.name + "`");
    }
    total_cost_ += unit.cost;
    cheapest = candidates == 0 ? unit.cost : std::min(cheapest, unit.cost);
    ++candidates;
  }
  max_units_ = unit_limit(options.max_o, candidates);
  max_cost_ = cost_limit(options.max_cost, total_cost_);
  if (candidates > 0 && cheapest > max_cost_) {
    throw Error("option `max_cost`: expected room for at least one unit, but every unit costs more than the limit of " +
                std::to_string(max_cost_));
  }
  group_count_.assign(groups.size(), 0);
  in_recovery_.assign(units.size(), 0);
  was_released_.assign(units.size(), 0);
  last_lock_.assign(units.size(), 0);
  release_mark_.assign(units.size(), 0);
  wait_until_.assign(units.size(), 0);
  const std::size_t most = std::min<std::size_t>(max_units_, candidates);
  recoveries_.reserve(most);
  for (std::vector<UnitIndex>* list : {&recovered_, &admitted_, &futile_, &released_}) list->reserve(most);
  denied_.reserve(candidates);
}

void Budget::release(History& history, bool common, bool has_samples) {
  admitted_.clear();
  denied_.clear();
  futile_.clear();
  released_.clear();
  const auto longest_wait = static_cast<std::uint32_t>(std::max(options_.lock_steps, options_.max_lock_steps));
  std::size_t kept = 0;
  for (Recovery& recovery : recoveries_) {
    ++recovery.steps;
    recovery.sampled = recovery.sampled || (has_samples && history.was_sampled(recovery.unit));
    const bool waits_for_sample = recovery.left == 1 && !recovery.sampled && recovery.steps < longest_wait;
    if (!waits_for_sample) --recovery.left;
    if (recovery.left > 0) {
      recoveries_[kept++] = recovery;
      continue;
    }
    leave(recovery.unit, history);
    released_.push_back(recovery.unit);
    const RiskKind risk = has_samples ? history.risk(recovery.unit) : RiskKind::none;
    if (options_.cooldown_steps == 0 || common || risk != recovery.kind) continue;
    futile_.push_back(recovery.unit);
    wait_until_[recovery.unit] = decisions_ + static_cast<std::uint64_t>(options_.cooldown_steps);
    if (history.was_zero(recovery.unit)) history.mute_zero(recovery.unit);
  }
  recoveries_.resize(kept);
}

bool Budget::less_urgent(const Candidate& a, const Candidate& b) {
  return a.severity != b.severity ? a.severity < b.severity : a.unit < b.unit;
}

void Budget::admit(std::span<Candidate> candidates, std::span<const UnitIndex> asking, const History& history) {
  // A heap, not a sort: as a rule few of many are taken.
  std::make_heap(candidates.begin(), candidates.end(), less_urgent);
  auto rest = candidates.end();
  while (rest != candidates.begin() && recoveries_.size() < max_units_) {
    std::pop_heap(candidates.begin(), rest, less_urgent);
    --rest;
    const UnitIndex unit = rest->unit;
    if (!fits(unit)) continue;
    const std::uint32_t lock = lock_for(unit, history);
    last_lock_[unit] = lock;
    enter({.unit = unit, .left = lock, .steps = 0, .sampled = false, .kind = rest->kind});
    admitted_.push_back(unit);
  }
  std::sort(admitted_.begin(), admitted_.end());
  for (const UnitIndex unit : asking) {
    if (in_recovery_[unit] == 0) denied_.push_back(unit);
  }
  list_recovered();
  ++decisions_;
}

bool Budget::fits(UnitIndex unit) const {
  if (recoveries_.size() >= max_units_) return false;
  if (unit_cost_[unit] > max_cost_ - cost_) return false;
  const std::uint32_t group = unit_group_[unit];
  return options_.group_max == 0 || group == kNoGroup ||
         group_count_[group] < static_cast<std::uint32_t>(options_.group_max);
}

void Budget::enter(const Recovery& recovery) {
  const UnitIndex unit = recovery.unit;
  recoveries_.push_back(recovery);
  in_recovery_[unit] = 1;
  cost_ += unit_cost_[unit];
  if (unit_group_[unit] != kNoGroup) ++group_count_[unit_group_[unit]];
}

void Budget::leave(UnitIndex unit, const History& history) {
  in_recovery_[unit] = 0;
  cost_ -= unit_cost_[unit];
  if (unit_group_[unit] != kNoGroup) --group_count_[unit_group_[unit]];
  was_released_[unit] = 1;
  release_mark_[unit] = history.sampled_steps(unit);
}

std::uint32_t Budget::lock_for(UnitIndex unit, const History& history) const {
  const auto lock_steps = static_cast<std::uint32_t>(options_.lock_steps);
  const bool relapsed = was_released_[unit] != 0 && history.sampled_steps(unit) - release_mark_[unit] <= lock_steps;
  if (!relapsed) return lock_steps;
  const std::uint64_t doubled = 2 * std::uint64_t{last_lock_[unit]};
  const auto longest = static_cast<std::uint64_t>(options_.max_lock_steps);
  return std::max(lock_steps, static_cast<std::uint32_t>(std::min(doubled, longest)));
}

void Budget::list_recovered() {
  std::sort(recoveries_.begin(), recoveries_.end(),
            [](const Recovery& a, const Recovery& b) { return a.unit < b.unit; });
  recovered_.clear();
  for (const Recovery& recovery : recoveries_) recovered_.push_back(recovery.unit);
}

const Budget::Recovery* Budget::recovery_of(UnitIndex unit) const {
  const auto found = std::lower_bound(recoveries_.begin(), recoveries_.end(), unit,
                                      [](const Recovery& recovery, UnitIndex index) { return recovery.unit < index; });
  return found != recoveries_.end() && found->unit == unit ? &*found : nullptr;
}

std::uint32_t Budget::steps_left(UnitIndex unit) const {
  const Recovery* const recovery = recovery_of(unit);
  return recovery != nullptr ? recovery->left : 0;
}

void Budget::save_unit(UnitIndex unit, const History& history, UnitState& state) const {
  state.last_lock_steps = last_lock_[unit];
  state.was_released = was_released_[unit] != 0;
  state.samples_since_release = state.was_released ? history.sampled_steps(unit) - release_mark_[unit] : 0;
  state.wait_steps = static_cast<std::uint32_t>(wait_until_[unit] > decisions_ ? wait_until_[unit] - decisions_ : 0);
  const Recovery* const recovery = recovery_of(unit);
  if (recovery == nullptr) return;
  state.in_recovery = true;
  state.steps_left = recovery->left;
  state.steps_in_recovery = recovery->steps;
  state.sampled_in_recovery = recovery->sampled;
  state.admitted_for = recovery->kind;
}

void Budget::restore_unit(UnitIndex unit, const History& history, const UnitState& state) {
  last_lock_[unit] = state.last_lock_steps;
  was_released_[unit] = state.was_released ? 1 : 0;
  release_mark_[unit] = history.sampled_steps(unit) - state.samples_since_release;
  wait_until_[unit] = state.wait_steps;
  if (!state.in_recovery) return;
  if (forced_[unit] != 0) {  // in no budget, so in no recovery of ours
    was_released_[unit] = 1;
    release_mark_[unit] = history.sampled_steps(unit);
    released_.push_back(unit);
    return;
  }
  enter({.unit = unit,
         .left = state.steps_left,
         .steps = state.steps_in_recovery,
         .sampled = state.sampled_in_recovery,
         .kind = state.admitted_for});
}

std::vector<UnitIndex> Budget::finish_restore(const History& history, std::uint64_t decisions) {
  for (std::uint64_t& until : wait_until_) until += until > 0 ? decisions : 0;
  decisions_ = decisions;

  std::vector<Recovery> order = recoveries_;
  std::sort(order.begin(), order.end(),
            [](const Recovery& a, const Recovery& b) { return a.left != b.left ? a.left < b.left : a.unit > b.unit; });
  std::vector<UnitIndex> dropped = released_;  // forced ones
  released_.clear();
  std::size_t count = order.size();
  for (const Recovery& recovery : order) {
    const UnitIndex unit = recovery.unit;
    const std::uint32_t group = unit_group_[unit];
    const bool group_exceeded = options_.group_max > 0 && group != kNoGroup &&
                                group_count_[group] > static_cast<std::uint32_t>(options_.group_max);
    if (count <= max_units_ && cost_ <= max_cost_ && !group_exceeded) continue;
    leave(unit, history);
    --count;
    dropped.push_back(unit);
  }
  std::erase_if(recoveries_, [this](const Recovery& recovery) { return in_recovery_[recovery.unit] == 0; });
  list_recovered();
  std::sort(dropped.begin(), dropped.end());
  return dropped;
}

}  // namespace gnmr
