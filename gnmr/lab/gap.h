// SPDX-License-Identifier: Apache-2.0
// How much of the loss that low precision costs an arm wins back, and whether that is more than noise.
//
// Cells are paired by seed. The gap is low - high; the share closed by an arm is the mean of low - arm over the mean of
// low - high: a ratio of means, since a mean of ratios lets the seed with the smallest gap decide. Intervals are at
// 95%, over seeds: Student's of a mean, Fieller's of a ratio; one seed has none.
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

/// A ratio of two means with its 95% interval.
struct Ratio {
  std::size_t count = 0;  // pairs; 0: there is no ratio
  double value = 0;
  std::optional<double> low = {};  // none below two pairs
  std::optional<double> high = {};
};

/// The mean of `parts` over the mean of `wholes`, number by number of one pair, with Fieller's interval. A count of 0
/// where the mean of `wholes` is not above 0, or no more than its noise: no interval would be bounded.
Ratio ratio_of_means(std::span<const double> parts, std::span<const double> wholes);

/// What an arm closes of the gap.
struct GapClosed {
  Estimate gap = {};  // low - high
  Ratio closed = {};  // a count of 0 where there is no gap

  /// Whether there is a gap that is more than noise; with one seed, whether there is any.
  bool has_gap() const { return closed.count > 0; }
};

/// The gap of seeds of which there is at least one.
GapClosed gap_closed(std::span<const SeedLosses> seeds);

}  // namespace gnmr::lab
