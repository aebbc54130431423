// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/proportion.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace gnmr::lab {
namespace {

constexpr double kTail = 0.025;
constexpr int kHalvings = 60;  // of [0, 1]

/// The probability of at most `most` hits of `cases`, each with `chance` in (0, 1).
double at_most(std::uint64_t most, std::uint64_t cases, double chance) {
  const auto all = static_cast<double>(cases);
  double sum = 0;
  for (std::uint64_t hits = 0; hits <= most; ++hits) {
    const auto count = static_cast<double>(hits);
    const double ways = std::lgamma(all + 1) - std::lgamma(count + 1) - std::lgamma(all - count + 1);
    sum += std::exp(ways + count * std::log(chance) + (all - count) * std::log1p(-chance));
  }
  return sum;
}

/// The chance at which at most `most` hits become as rare as `probability`: the more chance the rarer they are.
double chance_for(std::uint64_t most, std::uint64_t cases, double probability) {
  double low = 0;
  double high = 1;
  for (int halving = 0; halving < kHalvings; ++halving) {
    const double middle = (low + high) / 2;
    (at_most(most, cases, middle) > probability ? low : high) = middle;
  }
  return (low + high) / 2;
}

}  // namespace

Proportion proportion(std::uint64_t hits, std::uint64_t cases) {
  Proportion result{.hits = std::min(hits, cases), .cases = cases};
  if (result.hits > 0) result.low = chance_for(result.hits - 1, cases, 1 - kTail);
  if (result.hits < cases) result.high = chance_for(result.hits, cases, kTail);
  return result;
}

std::string proportion_text(const Proportion& proportion) {
  return fmt::format("{} of {} [{:.0f}, {:.0f}]", proportion.hits, proportion.cases, 100 * proportion.low,
                     100 * proportion.high);
}

}  // namespace gnmr::lab
