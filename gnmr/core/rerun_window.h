// SPDX-License-Identifier: Apache-2.0
// Which of the last decisions had a rerun, and the doubt that their verdicts left: points 4 of "Report" and "Doubt" in
// docs/algorithm.md.
#pragma once

#include <algorithm>
#include <bitset>
#include <cstdint>
#include <span>
#include <vector>

#include "gnmr/core/state.h"

namespace gnmr {

/// The limit on reruns: at most so many among a hundred decisions, and the more there were, the longer the wait.
class RerunWindow {
 public:
  explicit RerunWindow(std::int32_t most) : most_(static_cast<std::uint32_t>(most)) {}

  /// Whether one more rerun is within the limit, where so many are to come besides.
  bool allows(std::uint32_t to_come = 0) const {
    const std::uint32_t used = count_ + to_come;
    if (used >= most_) return false;
    if (count_ == 0 || most_ == kNoWait) return true;
    return used * (since_last_ + 1) <= most_ * since_last_;
  }

  /// Reruns that the next decision could still have.
  std::uint32_t left() const { return most_ - std::min(most_, count_); }

  /// One more decision.
  void add(bool rerun, Verdict verdict) {
    since_last_ = rerun ? 1 : std::min(since_last_ + 1, kRerunMemory + 1);
    if (verdict == Verdict::common) {
      doubt_ = {.value = std::min(2 * doubt_.value, kMostDoubt), .decisions_left = kDoubtDecisions};
    } else if (verdict == Verdict::numeric || doubt_.decisions_left <= 1) {
      doubt_ = {};
    } else {
      --doubt_.decisions_left;
    }
    count_ += rerun ? 1U : 0U;
    count_ -= decisions_[kRerunMemory - 1] ? 1U : 0U;
    decisions_ <<= 1;
    decisions_[0] = rerun;
  }

  /// In force in the next decision.
  const Doubt& doubt() const { return doubt_; }

  /// How many decisions ago, ascending.
  std::vector<std::uint32_t> ago() const {
    std::vector<std::uint32_t> found;
    for (std::uint32_t i = 0; i < kRerunMemory; ++i) {
      if (decisions_[i]) found.push_back(i);
    }
    return found;
  }

  void restore(std::span<const std::uint32_t> ago, const Doubt& doubt) {
    decisions_.reset();
    since_last_ = ago.empty() ? kRerunMemory + 1 : ago.front() + 1;
    doubt_ = doubt;
    for (const std::uint32_t decision : ago) decisions_.set(decision);
    count_ = static_cast<std::uint32_t>(decisions_.count());
  }

 private:
  static constexpr std::uint32_t kNoWait = 100;  // with this limit every step may be a rerun

  std::uint32_t most_;
  std::uint32_t count_ = 0;
  std::uint32_t since_last_ = kRerunMemory + 1;  // decisions since the last rerun, itself included
  Doubt doubt_;
  std::bitset<kRerunMemory> decisions_;  // the last one first
};

}  // namespace gnmr
