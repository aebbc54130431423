// SPDX-License-Identifier: Apache-2.0
#include "gnmr/report/curve.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace gnmr::report {
namespace {

std::vector<double> evenly_chosen(const std::vector<double>& values, std::size_t most) {
  if (values.size() <= most) return values;
  std::vector<double> chosen;
  for (std::size_t i = 0; i < most; ++i) chosen.push_back(values[i * values.size() / most]);
  return chosen;
}

}  // namespace

void Curve::add(double step, const std::optional<double>& value) {
  if (!value) return;
  if (!std::isfinite(*value)) {
    bad_steps.push_back(step);
    return;
  }
  steps.push_back(step);
  values.push_back(*value);
}

Curve thin_by_extremes(const Curve& curve, std::size_t most) {
  Curve thin;
  thin.bad_steps = evenly_chosen(curve.bad_steps, most / 4);
  const std::size_t count = curve.steps.size();
  const std::size_t stretches = std::max<std::size_t>(most / 2, 1);
  if (count <= most) {
    thin.steps = curve.steps;
    thin.values = curve.values;
    return thin;
  }
  for (std::size_t i = 0; i < stretches; ++i) {
    const auto begin = curve.values.begin() + static_cast<std::ptrdiff_t>(i * count / stretches);
    const auto end = curve.values.begin() + static_cast<std::ptrdiff_t>((i + 1) * count / stretches);
    const auto [low, high] = std::minmax_element(begin, end);
    const auto first = static_cast<std::size_t>(std::min(low, high) - curve.values.begin());
    const auto second = static_cast<std::size_t>(std::max(low, high) - curve.values.begin());
    thin.add(curve.steps[first], curve.values[first]);
    if (second != first) thin.add(curve.steps[second], curve.values[second]);
  }
  return thin;
}

Curve thin_by_means(const Curve& curve, double first, double last, std::size_t count) {
  Curve thin;
  thin.bad_steps = evenly_chosen(curve.bad_steps, count);
  const double width = (last - first + 1) / static_cast<double>(count);
  if (width <= 1) {
    thin.steps = curve.steps;
    thin.values = curve.values;
    return thin;
  }
  std::size_t i = 0;
  for (std::size_t stretch = 0; stretch < count && i < curve.steps.size(); ++stretch) {
    const double end = first - 0.5 + width * static_cast<double>(stretch + 1);
    double sum = 0;
    std::size_t members = 0;
    for (; i < curve.steps.size() && curve.steps[i] < end; ++i, ++members) sum += curve.values[i];
    if (members > 0) thin.add(end - width / 2, sum / static_cast<double>(members));
  }
  return thin;
}

Curve mean_curve(std::span<const Curve> curves) {
  std::map<double, std::pair<double, std::size_t>> sums;
  std::size_t members = 0;
  for (const Curve& curve : curves) {
    if (curve.steps.empty()) continue;
    ++members;
    for (std::size_t i = 0; i < curve.steps.size(); ++i) {
      auto& [sum, count] = sums[curve.steps[i]];
      sum += curve.values[i];
      ++count;
    }
  }
  Curve mean;
  for (const auto& [step, sum] : sums) {
    if (sum.second == members) mean.add(step, sum.first / static_cast<double>(members));
  }
  return mean;
}

std::optional<double> loss_ceiling(std::span<const Curve> curves) {
  constexpr double kAboveTheStart = 1.15;
  std::optional<double> start;
  std::optional<double> highest;
  for (const Curve& curve : curves) {
    if (curve.values.empty()) continue;
    start = std::max(start.value_or(curve.values.front()), curve.values.front());
    const double most = *std::max_element(curve.values.begin(), curve.values.end());
    highest = std::max(highest.value_or(most), most);
  }
  if (!start || *start <= 0) return highest;
  return std::min(*highest, *start * kAboveTheStart);
}

}  // namespace gnmr::report
