// SPDX-License-Identifier: Apache-2.0
// Norms as training has them, for tests: they wander, and now and then one is many times as large.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

namespace gnmr::lab {

/// Repeats itself on every machine, which std's distributions do not promise.
class RandomNorms {
 public:
  explicit RandomNorms(std::uint64_t seed) : bits_(seed) {}

  /// Between 0 and 1.
  double share() { return static_cast<double>(bits_() >> 11U) * 0x1p-53; }

  /// About `level`; one in twenty up to fifty times as large.
  double norm(double level = 1) {
    const double usual = level * std::exp(0.6 * (share() + share() - 1));
    return share() < 0.05 ? usual * (1 + 49 * share()) : usual;
  }

  /// One for each of `count` tensors, of different levels.
  std::vector<double> norms(std::size_t count) {
    std::vector<double> result;
    for (std::size_t tensor = 0; tensor < count; ++tensor) {
      result.push_back(norm(0.1 * static_cast<double>(1 + tensor)));
    }
    return result;
  }

 private:
  std::mt19937_64 bits_;
};

}  // namespace gnmr::lab
