// SPDX-License-Identifier: Apache-2.0
#include "gnmr/core/error_levels.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "gnmr/core/unit_math.h"

namespace gnmr {
namespace {

constexpr double kDecay = 0.95;
constexpr std::uint32_t kFewestErrors = 20;
constexpr std::size_t kFewestForMedian = 5;
constexpr double kHolds = 0.75;  // of the thresholds is enough for a unit in standing recovery
constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

double linear_log2(double x) {
  int exponent = 0;
  const double fraction = std::frexp(x, &exponent);  // in [0.5, 1)
  return (exponent - 1) + (2 * fraction - 1);
}

double linear_exp2(double y) {
  const double whole = std::floor(y);
  return std::ldexp(1 + (y - whole), static_cast<int>(whole));
}

ErrorLevels::ErrorLevels(const std::vector<Unit>& units, std::uint32_t sites, const Options& options)
    : sites_(options.coarse_error > 0 ? sites : 0),
      coarse_error_(options.coarse_error),
      coarse_factor_(options.coarse_factor),
      coarse_fill_(options.coarse_fill),
      levels_(units.size() * sites_),
      weights_(kDecay) {
  if (!is_on()) return;
  weights_.reserve();
  // Where the budget counts units and not their cost, a small unit is no cheaper.
  for (const Unit& unit : units) costs_.push_back(options.max_cost < 1 ? static_cast<double>(unit.cost) : 1.0);
  sorted_.reserve(units.size());
  held_.resize(units.size());
  claims_.resize(units.size());
  order_.reserve(units.size());
}

bool ErrorLevels::is_recent(const Level& level, std::uint64_t decision) const {
  return level.samples > 0 && decision - level.last <= kLongestLevelGap;
}

bool ErrorLevels::is_known(const Level& level, std::uint64_t decision) const {
  return level.samples >= kFewestErrors && is_recent(level, decision);
}

void ErrorLevels::learn(std::span<const double> errors, std::uint64_t decision) {
  if (!is_on()) return;
  for (std::size_t i = 0; i < errors.size(); ++i) {
    if (std::isnan(errors[i])) continue;
    Level& level = levels_[i];
    if (!is_recent(level, decision)) level = {};
    double y = linear_log2(std::clamp(errors[i], 0x1p-20, 16.0));
    if (level.samples >= kFewestErrors) {
      const double usual = value(level);
      y = std::min(std::max(y, usual - 1), usual + 1);
    }
    level.sum = unit_math::decayed(kDecay, 1 - kDecay, level.sum, y);
    if (level.samples < std::numeric_limits<std::uint32_t>::max()) ++level.samples;
    level.last = decision;
    if (level.samples > most_samples_) {
      most_samples_ = level.samples;
      weights_.extend_to(most_samples_);
    }
  }
}

void ErrorLevels::find_median(std::uint32_t site, std::uint64_t decision) {
  sorted_.clear();
  for (std::size_t i = site; i < levels_.size(); i += sites_) {
    if (is_known(levels_[i], decision)) sorted_.push_back(value(levels_[i]));
  }
  medians_[site] = kInfinity;
  if (sorted_.size() < kFewestForMedian) return;
  const auto middle = sorted_.begin() + static_cast<std::ptrdiff_t>((sorted_.size() - 1) / 2);
  std::nth_element(sorted_.begin(), middle, sorted_.end());
  medians_[site] = *middle;
}

/// Of the units that are coarse at a site, the keys.
void ErrorLevels::find_coarse(std::uint32_t site, std::uint64_t decision) {
  if (std::isinf(medians_[site])) return;
  const auto least = [](RiskKind held, double threshold) {
    return linear_log2(held == RiskKind::coarse ? kHolds * threshold : threshold);
  };
  for (UnitIndex unit = 0; unit < claims_.size(); ++unit) {
    const Level& level = levels_[std::size_t{unit} * sites_ + site];
    if (!is_known(level, decision)) continue;
    const double usual = value(level);
    const double above = usual - medians_[site];
    if (usual < least(held_[unit], coarse_error_) || above < least(held_[unit], coarse_factor_)) continue;
    const double key = linear_exp2(2 * above) / costs_[unit];
    claims_[unit] = {.kind = RiskKind::coarse, .key = std::max(claims_[unit].key, key)};
  }
}

/// Units that are not coarse, and should be high where there are coarse ones.
void ErrorLevels::find_filling(std::uint64_t decision) {
  const auto is_coarse = [](const StandingClaim& claim) { return claim.kind == RiskKind::coarse; };
  if (coarse_fill_ == 0 || std::none_of(claims_.begin(), claims_.end(), is_coarse)) return;
  const double enter = linear_log2(coarse_fill_);
  const double stay = linear_log2(kHolds * coarse_fill_);
  for (UnitIndex unit = 0; unit < claims_.size(); ++unit) {
    if (is_coarse(claims_[unit])) continue;
    const double least = held_[unit] == RiskKind::none ? enter : stay;
    bool is_large = false;
    for (std::uint32_t site = 0; site < sites_; ++site) {
      const Level& level = levels_[std::size_t{unit} * sites_ + site];
      is_large = is_large || (!std::isinf(medians_[site]) && is_known(level, decision) && value(level) >= least);
    }
    const double key = is_large ? excess(unit, decision) / costs_[unit] : 0;
    if (key > 0) claims_[unit] = {.kind = RiskKind::fill, .key = key};
  }
}

StandingClaims ErrorLevels::find_claims(std::uint64_t decision, std::span<const UnitIndex> standing,
                                        std::span<const UnitIndex> filling) {
  std::fill(claims_.begin(), claims_.end(), StandingClaim{});
  std::fill(held_.begin(), held_.end(), RiskKind::none);
  for (const UnitIndex unit : standing) held_[unit] = RiskKind::coarse;
  for (const UnitIndex unit : filling) held_[unit] = RiskKind::fill;
  for (std::uint32_t site = 0; site < sites_; ++site) {
    find_median(site, decision);
    find_coarse(site, decision);
  }
  find_filling(decision);
  order_.clear();
  for (UnitIndex unit = 0; unit < claims_.size(); ++unit) {
    if (claims_[unit].kind != RiskKind::none) order_.push_back(unit);
  }
  std::sort(order_.begin(), order_.end(), [this](UnitIndex a, UnitIndex b) {
    const StandingClaim& left = claims_[a];
    const StandingClaim& right = claims_[b];
    if (left.kind != right.kind) return left.kind == RiskKind::coarse;
    return left.key != right.key ? left.key > right.key : a < b;
  });
  return {.of_units = claims_, .order = order_};
}

double ErrorLevels::excess(UnitIndex unit, std::uint64_t decision) const {
  double sum = 0;
  for (std::uint32_t site = 0; site < sites_; ++site) {
    const double error = usual_error(unit, site, decision);
    const double beyond = error * error - median(site) * median(site);
    if (beyond > 0) sum += beyond;
  }
  return sum;
}

double ErrorLevels::median(std::uint32_t site) const {
  return std::isinf(medians_[site]) ? std::numeric_limits<double>::quiet_NaN() : linear_exp2(medians_[site]);
}

double ErrorLevels::usual_error(UnitIndex unit, std::uint32_t site, std::uint64_t decision) const {
  if (!is_on()) return std::numeric_limits<double>::quiet_NaN();
  const Level& level = levels_[std::size_t{unit} * sites_ + site];
  return is_known(level, decision) ? linear_exp2(value(level)) : std::numeric_limits<double>::quiet_NaN();
}

void ErrorLevels::save_unit(UnitIndex unit, std::uint64_t decision, std::span<LevelState> sites) const {
  for (std::uint32_t site = 0; site < sites_; ++site) {
    const Level& level = levels_[std::size_t{unit} * sites_ + site];
    if (!is_recent(level, decision)) continue;  // it would start afresh
    sites[site] = {level.samples, static_cast<std::uint32_t>(decision - level.last), level.sum};
  }
}

void ErrorLevels::restore_unit(UnitIndex unit, std::uint64_t decision, std::span<const LevelState> sites) {
  for (std::uint32_t site = 0; site < sites_; ++site) {
    const LevelState& saved = sites[site];
    if (saved.samples == 0) continue;
    levels_[std::size_t{unit} * sites_ + site] = {saved.samples, saved.sum, decision - saved.age};
    most_samples_ = std::max(most_samples_, saved.samples);
  }
  weights_.extend_to(most_samples_);
}

}  // namespace gnmr
