// SPDX-License-Identifier: Apache-2.0
// The path per unit of a plan, without touching every unit in every step.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "gnmr/core/step.h"

namespace gnmr {

/// Paths of all units; the views are valid until the next call.
class PathTable {
 public:
  explicit PathTable(std::size_t units) : paths_(units, kLowPath) { high_.reserve(units); }

  /// These units high, all others low.
  std::span<const std::uint8_t> high(std::span<const UnitIndex> units) {
    if (all_high_) {
      std::fill(paths_.begin(), paths_.end(), kLowPath);
    } else {
      for (const UnitIndex unit : high_) paths_[unit] = kLowPath;
    }
    all_high_ = false;
    high_.assign(units.begin(), units.end());
    for (const UnitIndex unit : high_) paths_[unit] = kHighPath;
    return paths_;
  }

  std::span<const std::uint8_t> all_high() {
    std::fill(paths_.begin(), paths_.end(), kHighPath);
    all_high_ = true;
    return paths_;
  }

 private:
  std::vector<std::uint8_t> paths_;
  std::vector<UnitIndex> high_;
  bool all_high_ = false;
};

}  // namespace gnmr
