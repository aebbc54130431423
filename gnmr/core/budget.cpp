// SPDX-License-Identifier: Apache-2.0
#include "gnmr/core/budget.h"

#include <algorithm>

#include "gnmr/core/error_levels.h"

namespace gnmr {
namespace {

// A unit takes the place of one in standing recovery if its key is this many times as large, and if that has lasted so
// long, or fills.
constexpr double kReplacingKey = 1.25;
constexpr std::uint32_t kFewestStandingSteps = 100;

}  // namespace

Budget::Budget(const std::vector<Unit>& units, const Options& options)
    : options_(options), limits_(units, options), bucket_(options.max_high_share, limits_.total_cost()) {
  for (const Unit& unit : units) forced_.push_back(unit.forced ? 1 : 0);
  in_recovery_.assign(units.size(), 0);
  was_released_.assign(units.size(), 0);
  last_lock_.assign(units.size(), 0);
  release_mark_.assign(units.size(), 0);
  wait_until_.assign(units.size(), 0);
  const std::size_t candidates = limits_.candidates();
  const std::size_t most = std::min<std::size_t>(limits_.max_units(), candidates);
  recoveries_.reserve(most);
  for (std::vector<UnitIndex>* list :
       {&recovered_, &admitted_, &futile_, &released_, &standing_, &newly_standing_, &filling_, &others_}) {
    list->reserve(most);
  }
  denied_.reserve(candidates);
}

/// Promises what the recoveries will take, when so many of their steps are over.
void Budget::count_promises(std::uint32_t steps_over) {
  bucket_.clear_promises();
  if (!bucket_.is_on()) return;
  for (const Recovery& recovery : recoveries_) {
    const std::int64_t cost = limits_.cost_of(recovery.unit);
    if (recovery.is_standing()) {
      bucket_.promise_standing(cost);
    } else {
      bucket_.promise(cost, recovery.left - steps_over);
    }
  }
}

/// Takes one step from a recovery.
bool Budget::lock_is_over(Recovery& recovery, const History& history, bool has_samples) {
  const auto longest_wait = static_cast<std::uint32_t>(std::max(options_.lock_steps, options_.max_lock_steps));
  recovery.sampled = recovery.sampled || (has_samples && history.was_sampled(recovery.unit));
  const std::int64_t cost = limits_.cost_of(recovery.unit);
  const bool waits_for_sample = recovery.left == 1 && !recovery.sampled && recovery.steps < longest_wait;
  if (waits_for_sample && bucket_.affords(cost, 1)) {
    bucket_.promise(cost, 1);
  } else {
    --recovery.left;
  }
  return recovery.left == 0;
}

/// Whether a review ends a standing recovery; if not it has kind and key of the review.
bool Budget::has_lost_claim(Recovery& recovery, const StandingClaims& claims) {
  if (claims.empty()) return false;
  const StandingClaim& claim = claims.of_units[recovery.unit];
  if (claim.kind == RiskKind::none) return true;
  recovery.kind = claim.kind;
  recovery.key = claim.key;
  return false;
}

void Budget::release(History& history, bool common, bool has_samples, const StandingClaims& claims) {
  for (std::vector<UnitIndex>* list : {&admitted_, &denied_, &futile_, &released_, &newly_standing_}) list->clear();
  bucket_.pass(decisions_, limits_.cost());
  count_promises(/*steps_over=*/1);
  bucket_.promise_reruns(limits_.total_cost());
  std::size_t kept = 0;
  for (Recovery& recovery : recoveries_) {
    ++recovery.steps;
    const bool is_over =
        recovery.is_standing() ? has_lost_claim(recovery, claims) : lock_is_over(recovery, history, has_samples);
    if (!is_over) {
      recoveries_[kept++] = recovery;
      continue;
    }
    leave(recovery, history);
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

void Budget::admit(std::span<Candidate> candidates, std::span<const UnitIndex> asking, const History& history,
                   const StandingClaims& claims) {
  // A heap, not a sort: as a rule few of many are taken.
  std::make_heap(candidates.begin(), candidates.end(), less_urgent);
  auto rest = candidates.end();
  const auto is_standing = [](const Recovery& recovery) { return recovery.is_standing(); };
  auto places = limits_.max_units() - limits_.count() +
                static_cast<std::uint32_t>(std::count_if(recoveries_.begin(), recoveries_.end(), is_standing));
  while (rest != candidates.begin() && places > 0) {
    std::pop_heap(candidates.begin(), rest, less_urgent);
    --rest;
    const UnitIndex unit = rest->unit;
    if (!fits(unit, rest->kind) && !make_room(unit, rest->kind, history)) {
      if (limits_.fits_without(unit, others_)) bucket_.note_refusal();  // the other limits would let it in
      continue;
    }
    const std::uint32_t lock = lock_for(unit, history);
    last_lock_[unit] = lock;
    enter({.unit = unit, .left = lock, .steps = 0, .sampled = false, .kind = rest->kind});
    admitted_.push_back(unit);
    --places;
  }
  std::sort(admitted_.begin(), admitted_.end());
  for (const UnitIndex unit : asking) {
    if (in_recovery_[unit] == 0) denied_.push_back(unit);
  }
  if (!claims.empty()) admit_standing(claims, history);
  std::sort(released_.begin(), released_.end());
  list_recovered();
  count_promises(/*steps_over=*/0);
  ++decisions_;
}

/// Whether there is room for a recovery of this kind.
bool Budget::fits(UnitIndex unit, RiskKind kind) const { return limits_.fits(unit) && is_paid_for(unit, kind); }

/// Whether the cap on high precision has enough for it, an acute one's whole lock included, if standing recoveries of
/// the cost `freed` ended.
bool Budget::is_paid_for(UnitIndex unit, RiskKind kind, std::int64_t freed) const {
  const std::int64_t cost = limits_.cost_of(unit);
  if (gnmr::is_standing(kind)) return bucket_.may_stand(cost, freed);
  return bucket_.affords(cost, static_cast<std::uint32_t>(options_.lock_steps), freed);
}

bool Budget::is_full_for(std::uint32_t steps) const {
  const auto has_place = [steps](const Recovery& recovery) { return !recovery.is_standing() && recovery.left > steps; };
  const auto taken = std::count_if(recoveries_.begin(), recoveries_.end(), has_place);
  return taken > 0 && static_cast<std::size_t>(taken) >= limits_.max_units();
}

/// Ends recoveries that come after this kind until the unit fits, if that helps: filling ones first.
bool Budget::make_room(UnitIndex unit, RiskKind kind, const History& history) {
  others_.clear();
  for (const Recovery& recovery : recoveries_) {
    const bool comes_after = recovery.kind == RiskKind::fill || (recovery.is_standing() && !gnmr::is_standing(kind));
    if (comes_after) others_.push_back(recovery.unit);
  }
  if (!limits_.fits_without(unit, others_)) return false;
  std::int64_t freed = 0;
  for (const UnitIndex other : others_) freed += limits_.cost_of(other);
  if (!is_paid_for(unit, kind, freed)) return false;
  while (!fits(unit, kind)) {
    const Place filling = least_standing(RiskKind::fill);
    end(filling != recoveries_.end() ? filling : least_standing(RiskKind::coarse), history);
  }
  return true;
}

/// Admits units to standing recovery, in the order of their claims.
void Budget::admit_standing(const StandingClaims& claims, const History& history) {
  for (const UnitIndex unit : claims.order) {
    if (in_recovery_[unit] != 0 || forced_[unit] != 0) continue;
    const auto [kind, key] = claims.of_units[unit];
    const bool has_room = fits(unit, kind) || (kind == RiskKind::coarse && make_room(unit, kind, history));
    if (!has_room && !replace_standing(unit, claims.of_units[unit], history)) continue;
    enter({.unit = unit, .left = 0, .steps = 0, .sampled = false, .kind = kind, .key = key});
    newly_standing_.push_back(unit);
  }
  std::sort(newly_standing_.begin(), newly_standing_.end());
}

/// Ends the standing recovery with the lowest key of the same kind, if this one's is clearly larger and it then fits.
bool Budget::replace_standing(UnitIndex unit, const StandingClaim& claim, const History& history) {
  const Place least = least_standing(claim.kind);
  const std::uint32_t fewest_steps = claim.kind == RiskKind::fill ? 0 : kFewestStandingSteps;
  const bool may_end = least != recoveries_.end() && least->steps >= fewest_steps &&
                       claim.key > kReplacingKey * least->key &&
                       limits_.fits_without(unit, std::span(&least->unit, 1)) &&
                       is_paid_for(unit, claim.kind, limits_.cost_of(least->unit));
  if (may_end) end(least, history);
  return may_end;
}

/// Of the standing recoveries of a kind the one with the lowest key, of equals the one with the highest index; the end:
/// there is none.
Budget::Place Budget::least_standing(RiskKind kind) {
  Place least = recoveries_.end();
  for (Place place = recoveries_.begin(); place != recoveries_.end(); ++place) {
    if (place->kind != kind) continue;
    const bool is_less = least == recoveries_.end() || place->key < least->key ||
                         (place->key == least->key && place->unit > least->unit);
    if (is_less) least = place;
  }
  return least;
}

void Budget::end(Place recovery, const History& history) {
  leave(*recovery, history);
  released_.push_back(recovery->unit);
  recoveries_.erase(recovery);
}

void Budget::enter(const Recovery& recovery) {
  recoveries_.push_back(recovery);
  in_recovery_[recovery.unit] = 1;
  limits_.take(recovery.unit);
  const std::int64_t cost = limits_.cost_of(recovery.unit);
  if (recovery.is_standing()) {
    bucket_.promise_standing(cost);
  } else {
    bucket_.promise(cost, recovery.left);
  }
}

void Budget::leave(const Recovery& recovery, const History& history) {
  const UnitIndex unit = recovery.unit;
  in_recovery_[unit] = 0;
  limits_.give_back(unit);
  if (recovery.is_standing()) {
    bucket_.end_standing(limits_.cost_of(unit));
    return;  // no relapse follows from it
  }
  was_released_[unit] = 1;
  release_mark_[unit] = history.sampled_steps(unit);
}

std::uint32_t Budget::lock_for(UnitIndex unit, const History& history) const {
  const auto lock_steps = static_cast<std::uint32_t>(options_.lock_steps);
  const bool relapsed = was_released_[unit] != 0 && history.sampled_steps(unit) - release_mark_[unit] <= lock_steps;
  if (!relapsed) return lock_steps;
  const std::uint64_t doubled = 2 * std::uint64_t{last_lock_[unit]};
  const auto longest = static_cast<std::uint64_t>(options_.max_lock_steps);
  const auto lock = static_cast<std::uint32_t>(std::min(doubled, longest));
  return std::max(lock_steps, std::min(lock, bucket_.steps_of(limits_.cost_of(unit))));
}

void Budget::list_recovered() {
  std::sort(recoveries_.begin(), recoveries_.end(),
            [](const Recovery& a, const Recovery& b) { return a.unit < b.unit; });
  recovered_.clear();
  standing_.clear();
  filling_.clear();
  for (const Recovery& recovery : recoveries_) {
    recovered_.push_back(recovery.unit);
    if (recovery.is_standing()) standing_.push_back(recovery.unit);
    if (recovery.kind == RiskKind::fill) filling_.push_back(recovery.unit);
  }
}

const Budget::Recovery* Budget::recovery_of(UnitIndex unit) const {
  const auto found = std::lower_bound(recoveries_.begin(), recoveries_.end(), unit,
                                      [](const Recovery& recovery, UnitIndex index) { return recovery.unit < index; });
  return found != recoveries_.end() && found->unit == unit ? &*found : nullptr;
}

std::uint32_t Budget::steps_left(UnitIndex unit) const {
  const Recovery* const recovery = recovery_of(unit);
  if (recovery == nullptr) return 0;
  if (!recovery->is_standing()) return recovery->left;
  return kReviewInterval - static_cast<std::uint32_t>(decisions_ % kReviewInterval);
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
  state.standing_key = recovery->key;
}

void Budget::restore_unit(UnitIndex unit, const History& history, const UnitState& state, bool may_stand) {
  last_lock_[unit] = state.last_lock_steps;
  was_released_[unit] = state.was_released ? 1 : 0;
  release_mark_[unit] = history.sampled_steps(unit) - state.samples_since_release;
  wait_until_[unit] = state.wait_steps;
  if (!state.in_recovery) return;
  const bool stands = gnmr::is_standing(state.admitted_for);
  const bool may_stay = !stands || (may_stand && (state.admitted_for == RiskKind::coarse || options_.coarse_fill > 0));
  if (forced_[unit] != 0 || !may_stay) {
    released_.push_back(unit);
    if (stands) return;
    was_released_[unit] = 1;
    release_mark_[unit] = history.sampled_steps(unit);
    return;
  }
  enter({.unit = unit,
         .left = state.steps_left,
         .steps = state.steps_in_recovery,
         .sampled = state.sampled_in_recovery,
         .kind = state.admitted_for,
         .key = state.standing_key});
}

std::vector<UnitIndex> Budget::finish_restore(const History& history, std::uint64_t decisions,
                                              const HighBucketState& bucket) {
  for (std::uint64_t& until : wait_until_) until += until > 0 ? decisions : 0;
  decisions_ = decisions;

  std::vector<Recovery> order = recoveries_;
  std::sort(order.begin(), order.end(), [](const Recovery& a, const Recovery& b) {
    if (a.is_standing() != b.is_standing()) return a.is_standing();
    if (a.is_standing() && a.kind != b.kind) return a.kind == RiskKind::fill;
    if (a.key != b.key) return a.key < b.key;
    return a.left != b.left ? a.left < b.left : a.unit > b.unit;
  });
  std::vector<UnitIndex> dropped = released_;  // forced ones, and standing ones where there are none
  released_.clear();
  for (const Recovery& recovery : order) {
    const bool stands_too_high = recovery.is_standing() && bucket_.standing_is_exceeded();
    if (!limits_.is_exceeded_for(recovery.unit) && !stands_too_high) continue;
    leave(recovery, history);
    dropped.push_back(recovery.unit);
  }
  std::erase_if(recoveries_, [this](const Recovery& recovery) { return in_recovery_[recovery.unit] == 0; });
  list_recovered();
  bucket_.restore(bucket);
  count_promises(/*steps_over=*/0);
  std::sort(dropped.begin(), dropped.end());
  return dropped;
}

}  // namespace gnmr
