// SPDX-License-Identifier: Apache-2.0
// The cap on high precision over time (`max_high_share`): section "Cap on high precision" of docs/algorithm.md.
//
// A bucket that each decision fills by its share of the total cost, and that recoveries and reruns empty. Whole
// numbers: the cost of units for one step.
//
// Goals: whoever enters recovery or runs again is known to be paid for. Non-goals: who that should be (budget.h).
#pragma once

#include <cstdint>

#include "gnmr/core/state.h"

namespace gnmr {

/// What the bucket holds, and how much of it is promised.
class HighBucket {
 public:
  /// `total`: the cost of all units that are not forced.
  HighBucket(double share, std::int64_t total);

  bool is_on() const { return is_on_; }

  /// One more decision: what it adds, less the cost of its trial and of the units that were in recovery. Nothing was
  /// refused in it yet.
  void pass(std::uint64_t decision, std::int64_t recovered_cost);

  /// Something was not promised that had room by all other limits.
  void note_refusal() { was_refused_ = true; }
  bool was_refused() const { return was_refused_; }

  /// How many reruns the next decision leaves enough for.
  void set_aside(std::uint32_t reruns) { set_aside_ = reruns; }

  /// What a trial takes, before the decision of its step passes.
  void take_at_next(std::int64_t cost) { due_ += cost; }

  /// What a replay takes, after the decision of its step.
  void take_now(std::int64_t cost);

  /// Nothing is promised any more.
  void clear_promises() { promised_ = standing_ = 0; }

  /// So many steps of an acute recovery, those reruns, or the next step of a standing recovery.
  void promise(std::int64_t cost, std::uint32_t steps);
  void promise_reruns(std::int64_t total) { promise(total, set_aside_); }
  void promise_standing(std::int64_t cost);
  void end_standing(std::int64_t cost);

  /// Whether so many steps can be promised besides, if `freed` were not promised.
  bool affords(std::int64_t cost, std::uint32_t steps, std::int64_t freed = 0) const;

  /// Whether one more standing recovery is within what these may take together, if `freed` of it ended.
  bool may_stand(std::int64_t cost, std::int64_t freed = 0) const;

  /// Whether standing recoveries take more than that.
  bool standing_is_exceeded() const { return is_on_ && standing_ > most_standing_; }

  /// The most steps, at least one, that can be promised of a unit that one can be promised of.
  std::uint32_t steps_of(std::int64_t cost) const;

  std::int64_t level() const { return level_; }

  HighBucketState save() const { return is_on_ ? HighBucketState{.size = size_, .level = level_} : HighBucketState{}; }

  /// A bucket of another size starts full.
  void restore(const HighBucketState& state) { level_ = state.size == size_ ? state.level : size_; }

 private:
  bool is_on_;
  std::int64_t size_;
  std::int64_t level_;
  std::int64_t most_standing_;  // per step
  std::int64_t promised_ = 0;   // standing recoveries included
  std::int64_t standing_ = 0;
  std::int64_t due_ = 0;
  std::uint32_t set_aside_ = 0;  // reruns
  bool was_refused_ = false;
};

}  // namespace gnmr
