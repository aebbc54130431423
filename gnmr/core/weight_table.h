// SPDX-License-Identifier: Apache-2.0
// The weight w (or p) of docs/algorithm.md by count: it depends on nothing else.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "gnmr/core/unit_math.h"

namespace gnmr {

/// Weights and what follows from them after each number of samples, until the weight has become 0.
///
/// Filled only as far as the counts have come. After `reserve` it does not allocate, except for a decay above 0.99998
/// that runs for more than kReserved samples.
class WeightTable {
 public:
  static constexpr std::size_t kReserved = std::size_t{1} << 21;

  explicit WeightTable(double decay) : decay_(decay), weights_{1.0}, complements_{unit_math::complement_of(1.0)} {}

  /// Sets room aside (and does not touch it) for as many counts as it takes until the weight is 0.
  void reserve() {
    const double most = std::log(unit_math::kWeightFloor) / std::log(decay_) + 3;  // 3 for a decay of 0
    const auto counts = static_cast<std::size_t>(std::min(most, static_cast<double>(kReserved)));
    weights_.reserve(counts);
    complements_.reserve(counts);
  }

  /// Makes every count up to `count` known.
  void extend_to(std::uint32_t count) {
    while (weights_.back() != 0 && weights_.size() <= count) {
      weights_.push_back(unit_math::next_weight(decay_, weights_.back()));
      complements_.push_back(unit_math::complement_of(weights_.back()));
    }
  }

  /// Counts from this one on have the same weight, as far as they are known.
  std::uint32_t last() const { return static_cast<std::uint32_t>(weights_.size() - 1); }

  /// The weight that is left after `count` samples.
  double weight(std::uint32_t count) const { return weights_[std::min(count, last())]; }

  /// What divides a sum after `count` samples to give its mean.
  double complement(std::uint32_t count) const { return complements_[std::min(count, last())]; }
  const double* complements() const { return complements_.data(); }

  /// A little below `1 / complement(n)` for every n up to `count`, so that a limit made with it is never too high.
  double reciprocal(std::uint32_t count) const {
    return weight(count) == 0 ? 1.0 : (1.0 / complement(count)) * (1.0 - 0x1p-40);
  }

 private:
  double decay_;
  std::vector<double> weights_;
  std::vector<double> complements_;
};

}  // namespace gnmr
