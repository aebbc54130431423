// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/gap.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace gnmr::lab {
namespace {

constexpr std::array<double, 30> kStudent{
    12.706204736, 4.302652730, 3.182446305, 2.776445105, 2.570581836, 2.446911851, 2.364624252, 2.306004135,
    2.262157163,  2.228138852, 2.200985160, 2.178812830, 2.160368656, 2.144786688, 2.131449546, 2.119905299,
    2.109815578,  2.100922040, 2.093024054, 2.085963447, 2.079613845, 2.073873068, 2.068657610, 2.063898562,
    2.059538553,  2.055529439, 2.051830516, 2.048407142, 2.045229642, 2.042272456};
constexpr double kNormal = 1.959963984540054;

}  // namespace

double median(std::vector<double> numbers) {
  if (numbers.empty()) return std::nan("");
  const std::size_t middle = numbers.size() / 2;
  std::sort(numbers.begin(), numbers.end());
  return numbers.size() % 2 == 1 ? numbers[middle] : (numbers[middle - 1] + numbers[middle]) / 2;
}

double student_quantile(std::size_t degrees_of_freedom) {
  if (degrees_of_freedom == 0) return std::nan("");
  if (degrees_of_freedom <= kStudent.size()) return kStudent[degrees_of_freedom - 1];
  // Cornish and Fisher's expansion about the normal distribution.
  const auto n = static_cast<double>(degrees_of_freedom);
  const double z = kNormal;
  const double first = (std::pow(z, 3) + z) / 4;
  const double second = (5 * std::pow(z, 5) + 16 * std::pow(z, 3) + 3 * z) / 96;
  const double third = (3 * std::pow(z, 7) + 19 * std::pow(z, 5) + 17 * std::pow(z, 3) - 15 * z) / 384;
  return z + first / n + second / (n * n) + third / (n * n * n);
}

bool Estimate::interval_has_zero() const { return half_width && std::abs(mean) <= *half_width; }

Estimate estimate(std::span<const double> numbers) {
  Estimate result{.count = numbers.size()};
  if (numbers.empty()) return result;
  const auto count = static_cast<double>(numbers.size());
  for (const double number : numbers) result.mean += number / count;
  if (numbers.size() < 2) return result;
  double squares = 0;
  for (const double number : numbers) squares += (number - result.mean) * (number - result.mean);
  result.spread = std::sqrt(squares / (count - 1));
  result.half_width = student_quantile(numbers.size() - 1) * *result.spread / std::sqrt(count);
  return result;
}

Ratio ratio_of_means(std::span<const double> parts, std::span<const double> wholes) {
  const Estimate part = estimate(parts);
  const Estimate whole = estimate(wholes);
  if (!(whole.mean > 0) || whole.interval_has_zero()) return {};
  Ratio ratio{.count = whole.count, .value = part.mean / whole.mean};
  if (!whole.half_width) return ratio;
  const auto count = static_cast<double>(whole.count);
  double products = 0;
  for (std::size_t pair = 0; pair < wholes.size(); ++pair) {
    products += (parts[pair] - part.mean) * (wholes[pair] - whole.mean);
  }
  // The ratios r for which part - r * whole has an interval with 0 in it: the roots of a quadratic.
  const double quantile = student_quantile(whole.count - 1);
  const double shared = quantile * quantile * products / (count - 1) / count;
  const double square = whole.mean * whole.mean - *whole.half_width * *whole.half_width;
  const double middle = part.mean * whole.mean - shared;
  const double rest = part.mean * part.mean - *part.half_width * *part.half_width;
  const double root = std::sqrt(std::max(middle * middle - square * rest, 0.0));
  ratio.low = (middle - root) / square;
  ratio.high = (middle + root) / square;
  return ratio;
}

GapClosed gap_closed(std::span<const SeedLosses> seeds) {
  std::vector<double> gaps;
  std::vector<double> gains;
  for (const SeedLosses& seed : seeds) {
    gaps.push_back(seed.low - seed.high);
    gains.push_back(seed.low - seed.arm);
  }
  return {.gap = estimate(gaps), .closed = ratio_of_means(gains, gaps)};
}

}  // namespace gnmr::lab
