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

GapClosed gap_closed(std::span<const SeedLosses> seeds) {
  std::vector<double> gaps;
  std::vector<double> shares;
  for (const SeedLosses& seed : seeds) {
    gaps.push_back(seed.low - seed.high);
    shares.push_back((seed.low - seed.arm) / (seed.low - seed.high));
  }
  GapClosed result{.gap = estimate(gaps)};
  if (result.gap.mean <= 0 || result.gap.interval_has_zero()) return result;
  for (const double share : shares) {
    if (!std::isfinite(share)) return result;  // a seed without any gap
  }
  result.closed = estimate(shares);
  return result;
}

}  // namespace gnmr::lab
