// SPDX-License-Identifier: Apache-2.0
// Which of the last decisions had a rerun.
#pragma once

#include <algorithm>
#include <bitset>
#include <cstdint>
#include <span>
#include <vector>

#include "gnmr/core/state.h"

namespace gnmr {

/// The limit on reruns: at most so many among a hundred decisions.
class RerunWindow {
 public:
  explicit RerunWindow(std::int32_t most) : most_(static_cast<std::uint32_t>(most)) {}

  /// Reruns that the next decision could still have.
  std::uint32_t left() const { return most_ - std::min(most_, count_); }

  /// One more decision.
  void add(bool rerun) {
    count_ += rerun ? 1U : 0U;
    count_ -= decisions_[kRerunMemory - 1] ? 1U : 0U;
    decisions_ <<= 1;
    decisions_[0] = rerun;
  }

  /// How many decisions ago, ascending.
  std::vector<std::uint32_t> ago() const {
    std::vector<std::uint32_t> found;
    for (std::uint32_t i = 0; i < kRerunMemory; ++i) {
      if (decisions_[i]) found.push_back(i);
    }
    return found;
  }

  void restore(std::span<const std::uint32_t> ago) {
    decisions_.reset();
    for (const std::uint32_t decision : ago) decisions_.set(decision);
    count_ = static_cast<std::uint32_t>(decisions_.count());
  }

 private:
  std::uint32_t most_;
  std::uint32_t count_ = 0;
  std::bitset<kRerunMemory> decisions_;  // the last one first
};

}  // namespace gnmr
