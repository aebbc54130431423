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
/// Filled only as far as the counts have come, and never beyond kTabulated counts; only a decay above 0.99998 goes on
/// beyond. From there on every kStride-th weight is kept and those between are computed when they are asked for.
class WeightTable {
 public:
  static constexpr std::size_t kTabulated = std::size_t{1} << 21;
  static constexpr std::uint32_t kStride = 4096;

  explicit WeightTable(double decay) : decay_(decay), weights_{1.0} {}

  /// Sets room aside (and does not touch it), so that steps do not allocate: for the whole table, and for steps by the
  /// billion beyond it.
  void reserve() {
    const double most = std::log(unit_math::kWeightFloor) / std::log(decay_) + 3;  // 3 for a decay of 0
    weights_.reserve(static_cast<std::size_t>(std::min(most, static_cast<double>(kTabulated))));
    if (most > static_cast<double>(kTabulated)) strided_.reserve((std::size_t{1} << 32) / kStride);
  }

  /// Makes every count up to `count` known.
  void extend_to(std::uint32_t count) {
    for (; last_weight_ != 0 && known_ < count; ++known_) {
      last_weight_ = unit_math::next_weight(decay_, last_weight_);
      if (weights_.size() < kTabulated) {
        weights_.push_back(last_weight_);
      } else if ((known_ + 1) % kStride == 0) {
        strided_.push_back(last_weight_);
      }
    }
  }

  /// The weight that is left after `count` samples, as far as counts are known.
  double weight(std::uint32_t count) const {
    if (count < weights_.size()) return weights_[count];
    if (last_weight_ == 0 && count >= known_) return 0;
    count = std::min(count, known_);
    if (count < weights_.size()) return weights_[count];
    static_assert(kTabulated % kStride == 0);
    const std::uint32_t strides = (count - static_cast<std::uint32_t>(kTabulated)) / kStride;
    double weight = strided_[strides];
    for (std::uint32_t at = static_cast<std::uint32_t>(kTabulated) + strides * kStride; at < count; ++at) {
      weight = unit_math::next_weight(decay_, weight);
    }
    return weight;
  }

  /// What divides a sum after `count` samples to give its mean.
  double complement(std::uint32_t count) const { return unit_math::complement_of(weight(count)); }

  /// A little below `1 / complement(n)` for every n up to `count`, so that a limit made with it is never too high.
  double reciprocal(std::uint32_t count) const {
    const double left = weight(count);
    return left == 0 ? 1.0 : (1.0 / unit_math::complement_of(left)) * (1.0 - 0x1p-40);
  }

 private:
  double decay_;
  std::vector<double> weights_;  // by count
  std::vector<double> strided_;  // of counts kTabulated, kTabulated + kStride, ...
  std::uint32_t known_ = 0;
  double last_weight_ = 1.0;
};

}  // namespace gnmr
