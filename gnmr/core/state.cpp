// SPDX-License-Identifier: Apache-2.0
#include "gnmr/core/state.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <string_view>
#include <unordered_set>

#include "gnmr/core/error.h"
#include "gnmr/core/unit_math.h"

namespace gnmr {
namespace {

constexpr double kMostLevel = 20;  // errors count as at least 2^-20
constexpr std::uint64_t kMostDecisions = std::uint64_t{1} << 62U;

bool is_sum(double value) { return std::isfinite(value) && value >= 0; }

// A mean may round to infinity where norms are near the largest double.
bool is_mean_sum(double value) { return value >= 0; }

bool is_ratio(double value) { return value >= 0 && value <= unit_math::kRatioCap; }

[[noreturn]] void reject(const UnitState& unit, const std::string& what) {
  throw Error("state of unit `" + unit.name + "`: expected " + what);
}

void check_history(const UnitState& unit, std::size_t window) {
  if (!is_mean_sum(unit.mean_sum)) reject(unit, "a mean that is not negative");
  if (!is_sum(unit.rise_change_sum) || !is_sum(unit.fall_change_sum)) {
    reject(unit, "usual changes that are finite and not negative");
  }
  if (unit.samples == 0 && unit.mean_sum != 0) reject(unit, "no mean before the first sample");
  if (unit.changes == 0 && (unit.rise_change_sum != 0 || unit.fall_change_sum != 0)) {
    reject(unit, "no usual change before the first");
  }
  if (unit.ratios.size() != unit.inverses.size() || unit.ratios.size() > window) {
    reject(unit, "as many kept ratios as inverses, and at most the window");
  }
  for (std::size_t i = 0; i < unit.ratios.size(); ++i) {
    if (!is_ratio(unit.ratios[i]) || !is_ratio(unit.inverses[i])) {
      reject(unit, "kept ratios and inverses between 0 and 1e30");
    }
  }
}

void check_recovery(const UnitState& unit) {
  if (unit.was_released && unit.last_lock_steps == 0) reject(unit, "a lock before a release");
  if (unit.last_lock_steps > static_cast<std::uint32_t>(kMaxWhole)) reject(unit, "a lock below 2^31 steps");
  if (unit.wait_steps > static_cast<std::uint32_t>(kMaxWhole)) reject(unit, "a wait below 2^31 steps");
  if (unit.steps_in_recovery > static_cast<std::uint32_t>(kMaxWhole)) reject(unit, "a recovery below 2^31 steps");
  if (!unit.in_recovery) {
    if (unit.standing_key != 0) reject(unit, "no key outside standing recovery");
    return;
  }
  if (is_standing(unit.admitted_for)) {
    const bool has_key = std::isfinite(unit.standing_key) && unit.standing_key > 0;
    if (!has_key || unit.steps_left != 0) reject(unit, "a standing recovery with a key above 0 and without a lock");
    return;
  }
  if (unit.standing_key != 0) reject(unit, "no key outside standing recovery");
  if (unit.steps_left == 0 || unit.steps_left > unit.last_lock_steps) {
    reject(unit, "a recovery with at least one step left, and no more than its lock");
  }
  if (unit.admitted_for == RiskKind::none || unit.admitted_for > RiskKind::error) {
    reject(unit, "a reason for its recovery");
  }
}

void check_levels(const ControllerState& state) {
  if (state.levels.empty()) return;
  if (state.levels.size() != state.units.size() * state.sites) {
    throw Error("state: expected " + std::to_string(state.sites) + " levels for each of " +
                std::to_string(state.units.size()) + " units, got " + std::to_string(state.levels.size()));
  }
  for (std::size_t i = 0; i < state.levels.size(); ++i) {
    const LevelState& level = state.levels[i];
    const bool is_empty = level == LevelState{};
    const bool is_level = level.samples > 0 && level.age >= 1 && level.age <= kLongestLevelGap &&
                          level.age <= state.decisions && std::abs(level.sum) <= kMostLevel;
    if (!is_empty && !is_level) {
      reject(state.units[i / state.sites], "a level between -20 and 4 that is at most 200 decisions old");
    }
  }
}

void check_errors(const ControllerState& state) {
  if (state.sites > kMostSites) {
    throw Error("state: expected at most " + std::to_string(kMostSites) + " sites, got " + std::to_string(state.sites));
  }
  if (state.errors.size() != state.units.size() * state.sites) {
    throw Error("state: expected " + std::to_string(state.sites) + " errors for each of " +
                std::to_string(state.units.size()) + " units, got " + std::to_string(state.errors.size()));
  }
  for (std::size_t i = 0; i < state.errors.size(); ++i) {
    const ErrorState& error = state.errors[i];
    if (!is_mean_sum(error.mean_sum) || (error.samples == 0 && error.mean_sum != 0)) {
      reject(state.units[i / state.sites], "usual errors that are not negative, and none before the first");
    }
  }
  for (std::size_t i = 0; i < state.reruns_ago.size(); ++i) {
    const bool ascends = i == 0 || state.reruns_ago[i] > state.reruns_ago[i - 1];
    if (!ascends || state.reruns_ago[i] >= kRerunMemory) {
      throw Error("state: expected reruns of the last " + std::to_string(kRerunMemory) + " decisions, ascending, got " +
                  std::to_string(state.reruns_ago[i]) + " decisions ago");
    }
  }
}

void check_doubt(const Doubt& doubt) {
  const bool is_doubt = doubt.value >= 2 && doubt.value <= kMostDoubt && std::has_single_bit(doubt.value) &&
                        doubt.decisions_left >= 1 && doubt.decisions_left <= kDoubtDecisions;
  if (is_doubt || doubt == Doubt{}) return;
  throw Error("state: expected a doubt of 2, 4 or 8 for 1 to 100 decisions or none, got " +
              std::to_string(doubt.value) + " for " + std::to_string(doubt.decisions_left));
}

void check_high_bucket(const HighBucketState& bucket) {
  if (bucket.size >= 0 && bucket.size <= kMostHighBucket && bucket.level >= 0 && bucket.level <= bucket.size) return;
  throw Error("state: expected a cap on high precision of at most 100 times 2^53 with at most that left, got " +
              std::to_string(bucket.level) + " of " + std::to_string(bucket.size));
}

}  // namespace

void check_state(const ControllerState& state) {
  validate(state.options);
  check_errors(state);
  check_levels(state);
  check_doubt(state.doubt);
  check_high_bucket(state.high_bucket);
  if (state.decisions > kMostDecisions) throw Error("state: expected at most 2^62 decisions");
  std::unordered_set<std::string_view> names;
  for (const UnitState& unit : state.units) {
    if (unit.name.empty()) throw Error("state: expected a name for every unit, got an empty one");
    if (!names.insert(unit.name).second) throw Error("state: expected unique names, got `" + unit.name + "` twice");
    check_history(unit, static_cast<std::size_t>(state.options.window));
    check_recovery(unit);
  }
}

void check_plan(const PlanState& plan, std::size_t units) {
  const auto expect = [](bool holds, const char* what) {
    if (!holds) throw Error(std::string("plan: expected ") + what);
  };
  const auto is_unit = [units](UnitIndex unit) { return unit < units; };
  expect(std::all_of(plan.recovered.begin(), plan.recovered.end(), is_unit) &&
             std::adjacent_find(plan.recovered.begin(), plan.recovered.end(), std::greater_equal<>()) ==
                 plan.recovered.end(),
         "units in recovery that ascend, each one of the controller's");
  expect(plan.flags.empty() || plan.flags.size() == units, "one flag per unit, or none");
  const bool even = units == 0 ? plan.error_limits.empty() : plan.error_limits.size() % units == 0;
  expect(even && std::all_of(plan.error_limits.begin(), plan.error_limits.end(), is_error_limit),
         "limits of errors that are not negative, as many for each unit");
  expect(plan.undecided.size() <= 2, "at most two steps without a decision");
  const bool follow = plan.undecided.size() < 2 || plan.undecided[1].step == plan.undecided[0].step + 1;
  expect(follow, "steps without a decision that follow each other");
}

}  // namespace gnmr
