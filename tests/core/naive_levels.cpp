// SPDX-License-Identifier: Apache-2.0
// The naive second implementation of "Levels", "Coarse units" and "Filling units": see naive_levels.h. Quoted comments
// are sentences of docs/algorithm.md.
#include "naive_levels.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace gnmr::naive {

// "lg(x) for x > 0 is k + (x / 2^k - 1) with 2^k <= x < 2^(k+1)"
double lg(double x) {
  int exponent = 0;
  const double half_to_one = std::frexp(x, &exponent);
  const double quotient = 2 * half_to_one;
  const int k = exponent - 1;
  return k + (quotient - 1);
}

// "ex(y) is its inverse, 2^floor(y) * (1 + (y - floor(y)))"
double ex(double y) {
  const double whole = std::floor(y);
  return std::ldexp(1 + (y - whole), static_cast<int>(whole));
}

Levels::Levels(std::vector<Unit> units, const Options& options, std::size_t sites)
    : units_(std::move(units)), options_(options), levels_(units_.size(), std::vector<Level>(sites)) {}

// "one of the 200 decisions before it took an error in"
bool Levels::is_recent(const Level& state, std::int64_t decision) {
  return state.last && *state.last >= decision - 200 && *state.last <= decision - 1;
}

void Levels::take_in(std::int64_t decision, std::size_t unit, std::size_t site, double error) {
  Level& state = levels_[unit][site];
  // "If none of the 200 decisions before this one took an error of the site in: n = 0, l = 0, p = 1 first."
  if (!is_recent(state, decision)) {
    state = Level{};
  }
  // "y = lg(min(max(e, 2^-20), 16))."
  double y = lg(std::min(std::max(error, std::ldexp(1.0, -20)), 16.0));
  // "If n >= 20: y = min(max(y, L - 1), L + 1) with the level L = l / (1 - p)."
  if (state.n >= 20) {
    const double level = level_of(state);
    y = std::min(std::max(y, level - 1), level + 1);
  }
  // "b = 0.95"; "l = b * l + (1 - b) * y, p = b * p (below 2^-60: 0), n = n + 1."
  const double b = 0.95;
  state.l = b * state.l + (1 - b) * y;
  state.p = b * state.p;
  if (state.p < std::ldexp(1.0, -60)) {
    state.p = 0;
  }
  state.n = state.n + 1;
  state.last = decision;
}

// "A level is known in a decision where n >= 20 and one of the 200 decisions before it took an error in."
std::optional<double> Levels::known(std::int64_t decision, std::size_t unit, std::size_t site) const {
  const Level& state = levels_.at(unit).at(site);
  if (state.n >= 20 && is_recent(state, decision)) {
    return level_of(state);
  }
  return std::nullopt;
}

// "In a decision median of a site is, of its known levels over all units in ascending order, the one at index
// floor((count - 1) / 2), where there are at least 5"
std::optional<double> Levels::median(std::int64_t decision, std::size_t site) const {
  std::vector<double> all;
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    if (const std::optional<double> level = known(decision, unit, site)) {
      all.push_back(*level);
    }
  }
  if (all.size() < 5) {
    return std::nullopt;
  }
  std::sort(all.begin(), all.end());
  return all[(all.size() - 1) / 2];
}

// "A unit is coarse if one of its sites is."
std::optional<double> Levels::coarse_key(std::int64_t decision, std::size_t unit, double f,
                                         const std::vector<std::optional<double>>& medians) const {
  std::optional<double> largest;
  for (std::size_t site = 0; site < levels_.at(unit).size(); ++site) {
    const std::optional<double> level = known(decision, unit, site);
    const std::optional<double> median = medians[site];
    // "a site of a unit is coarse where its level is known, L >= lg(f * coarse_error) and L - median >= lg(f *
    // coarse_factor)"; without a median "no unit is coarse there".
    if (!level || !median || !(*level >= lg(f * options_.coarse_error)) ||
        !(*level - *median >= lg(f * options_.coarse_factor))) {
      continue;
    }
    // "Its key is the largest ex(2 * (L - median)) over its coarse sites, divided by its cost where max_cost < 1."
    double key = ex(2 * (*level - *median));
    if (options_.max_cost < 1) {
      key /= static_cast<double>(units_.at(unit).cost);
    }
    if (!largest || key > *largest) {
      largest = key;
    }
  }
  return largest;
}

// "a unit that is not coarse fills if a site of it with a known level and a median has L >= lg(f * coarse_fill) ... and
// its key is above 0"
std::optional<double> Levels::filling_key(std::int64_t decision, std::size_t unit, double f,
                                          const std::vector<std::optional<double>>& medians) const {
  bool large = false;
  double key = 0;
  for (std::size_t site = 0; site < levels_.at(unit).size(); ++site) {
    const std::optional<double> level = known(decision, unit, site);
    const std::optional<double> median = medians[site];
    if (!level || !median) {
      continue;
    }
    large = large || *level >= lg(f * options_.coarse_fill);
    // "the sum over its sites with a known level and a median, in their order, of ex(L) * ex(L) - ex(median) *
    // ex(median) as far as that is above 0"
    const double part = ex(*level) * ex(*level) - ex(*median) * ex(*median);
    if (part > 0) {
      key = key + part;
    }
  }
  // "divided by its cost where max_cost < 1"
  if (options_.max_cost < 1) {
    key /= static_cast<double>(units_.at(unit).cost);
  }
  if (!large || !(key > 0)) {
    return std::nullopt;
  }
  return key;
}

Review Levels::review(std::int64_t decision, const std::vector<RiskKind>& standing) const {
  std::vector<std::optional<double>> medians;
  for (std::size_t site = 0; !levels_.empty() && site < levels_[0].size(); ++site) {
    medians.push_back(median(decision, site));
  }
  Review review(units_.size());
  bool some_unit_is_coarse = false;
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    // "With f = 0.75 for a unit that is in standing recovery for coarse as the decision begins, and 1 for others"
    const double f = standing.at(unit) == RiskKind::coarse ? 0.75 : 1;
    if (const std::optional<double> key = coarse_key(decision, unit, f, medians)) {
      review[unit] = Claim{RiskKind::coarse, *key};
      some_unit_is_coarse = true;
    }
  }
  // "Where some unit is coarse and coarse_fill > 0"
  for (std::size_t unit = 0; some_unit_is_coarse && options_.coarse_fill > 0 && unit < units_.size(); ++unit) {
    // "f = 0.75 for a unit that is in standing recovery as the decision begins (coarse or filling)"
    const double f = standing.at(unit) == RiskKind::none ? 1 : 0.75;
    if (const std::optional<double> key = filling_key(decision, unit, f, medians); key && !review[unit]) {
      review[unit] = Claim{RiskKind::fill, *key};
    }
  }
  return review;
}

}  // namespace gnmr::naive
