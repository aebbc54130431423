// SPDX-License-Identifier: Apache-2.0
// How much of the loss that low precision costs an arm wins back, and whether that is more than noise.
//
// Cells are paired by seed. The gap of a seed is low - high; the share closed by an arm is (low - arm) / (low - high).
// Intervals are Student's, at 95%, over seeds; one seed has none.
//
// Goals: noise is not a gain: where the gap's own interval holds 0 there is nothing to close. Non-goals: seeds that did
// not end with a number; the caller must report those instead.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace gnmr::lab {

/// Mean, spread and 95% interval of a few numbers.
struct Estimate {
  std::size_t count = 0;
  double mean = 0;
  std::optional<double> spread = {};      // sample standard deviation; none below two numbers
  std::optional<double> half_width = {};  // of the interval of the mean; none below two numbers

  /// Whether 0 lies in the interval; false where there is none.
  bool interval_has_zero() const;
};

/// The estimate from numbers that are all finite; a count of 0 where there are none.
Estimate estimate(std::span<const double> numbers);

/// The median; NaN where there are no numbers.
double median(std::vector<double> numbers);

/// The 97.5% quantile of Student's distribution with so many degrees of freedom, at least 1.
double student_quantile(std::size_t degrees_of_freedom);

/// The losses of one seed, all finite.
struct SeedLosses {
  double high = 0;
  double low = 0;
  double arm = 0;
};

/// What an arm closes of the gap.
struct GapClosed {
  Estimate gap = {};     // low - high
  Estimate closed = {};  // mean of the seeds' shares; a count of 0 where there is no gap

  /// Whether there is a gap that is more than noise; with one seed, whether there is any.
  bool has_gap() const { return closed.count > 0; }
};

/// The gap of seeds of which there is at least one.
GapClosed gap_closed(std::span<const SeedLosses> seeds);

}  // namespace gnmr::lab
