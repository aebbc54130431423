// SPDX-License-Identifier: Apache-2.0
// A quantity over steps, thinned to what a screen can show.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace gnmr::report {

/// Points with ascending steps and finite values; steps whose value was not finite are listed apart.
struct Curve {
  std::vector<double> steps;
  std::vector<double> values;
  std::vector<double> bad_steps;

  bool empty() const { return steps.empty() && bad_steps.empty(); }

  /// A value; one that is not finite becomes a bad step.
  void add(double step, const std::optional<double>& value);
};

/// At most about `most` points: of each stretch of steps the lowest and the highest value, so that spikes stay.
Curve thin_by_extremes(const Curve& curve, std::size_t most);

/// The mean over each of `count` equal stretches of [first, last]; stretches without a value are left out.
Curve thin_by_means(const Curve& curve, double first, double last, std::size_t count);

/// The mean of several curves at the steps that all of them have; empty curves do not count.
Curve mean_curve(std::span<const Curve> curves);

/// The largest value that a plot of losses should reach: a run that diverges must not squeeze all others into a line.
/// Absent where there is no value.
std::optional<double> loss_ceiling(std::span<const Curve> curves);

}  // namespace gnmr::report
