// SPDX-License-Identifier: Apache-2.0
#include "gnmr/core/error_history.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "gnmr/core/unit_math.h"

namespace gnmr {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();

// Below this many errors a median says nothing.
constexpr std::size_t kFewestForMedian = 5;

// No limit is below this: an error of a hundred-thousandth of a percent is none, however usual 0 is.
constexpr double kLowestLimit = 1e-6;

double excess_of(double error, double limit) { return std::isinf(error) ? error : error / limit; }

/// The smallest float that is not below a limit.
float rounded_up(double limit) {
  constexpr float kLargest = std::numeric_limits<float>::infinity();
  if (limit > static_cast<double>(std::numeric_limits<float>::max())) return kLargest;
  const auto nearest = static_cast<float>(limit);
  return static_cast<double>(nearest) < limit ? std::nextafter(nearest, kLargest) : nearest;
}

}  // namespace

ErrorHistory::ErrorHistory(std::size_t units, std::vector<double> expected, const Options& options)
    : options_(options),
      expected_(std::move(expected)),
      memory_(units * expected_.size()),
      weights_(options.error_beta),
      judged_(memory_.size()),
      limits_(memory_.size()) {
  weights_.reserve();
  sorted_.reserve(units);
}

double ErrorHistory::median_of(std::uint32_t site) {
  if (median_known_[site]) return medians_[site];
  sorted_.clear();
  for (std::size_t i = site; i < judged_.size(); i += expected_.size()) {
    if (std::isfinite(judged_[i])) sorted_.push_back(judged_[i]);
  }
  medians_[site] = kInfinity;
  if (sorted_.size() >= kFewestForMedian) {
    const auto middle = sorted_.begin() + static_cast<std::ptrdiff_t>((sorted_.size() - 1) / 2);
    std::nth_element(sorted_.begin(), middle, sorted_.end());
    medians_[site] = *middle;
  }
  median_known_[site] = true;
  return medians_[site];
}

/// The usual error of a site of a unit; infinity where that is not known.
double ErrorHistory::reference_of(std::uint32_t site, const ErrorState& usual, ErrorSource source) {
  if (usual.samples >= static_cast<std::uint32_t>(options_.error_warmup)) {
    return unit_math::mean_of(usual.mean_sum, weights_.complement(usual.samples));
  }
  return source == ErrorSource::trial ? median_of(site) : kInfinity;
}

double ErrorHistory::limit_of(std::uint32_t site, double reference) const {
  double limit = options_.error_factor * reference;
  if (expected_[site] > 0 && options_.error_ceiling > 0) {
    limit = std::min(limit, options_.error_ceiling * expected_[site]);
  }
  return std::max({limit, options_.error_floor, kLowestLimit});
}

void ErrorHistory::judge(std::span<const double> errors, ErrorSource source, std::vector<Finding>& found) {
  found.clear();
  std::copy(errors.begin(), errors.end(), judged_.begin());
  median_known_.fill(false);
  judged_any_ = true;
  const std::uint32_t site_count = sites();
  const auto unit_count = static_cast<UnitIndex>(memory_.size() / site_count);
  std::size_t at = 0;
  for (UnitIndex unit = 0; unit < unit_count; ++unit) {
    double most = 1;
    std::uint32_t most_site = site_count;
    for (std::uint32_t site = 0; site < site_count; ++site, ++at) {
      limits_[at] = kNothing;
      if (std::isnan(judged_[at])) continue;
      limits_[at] = limit_of(site, reference_of(site, memory_[at], source));
      const double excess = excess_of(judged_[at], limits_[at]);
      if (excess <= most) continue;
      most = excess;
      most_site = site;
    }
    if (most_site == site_count) continue;
    found.push_back({.unit = unit,
                     .site = static_cast<std::uint8_t>(most_site),
                     .error = judged_[index(unit, most_site)],
                     .excess = most});
  }
}

void ErrorHistory::learn() {
  if (!judged_any_) return;
  const double one_minus_beta = 1.0 - options_.error_beta;
  for (std::size_t i = 0; i < judged_.size(); ++i) {
    if (!is_learned(i)) continue;
    ErrorState& usual = memory_[i];
    usual.mean_sum = unit_math::decayed(options_.error_beta, one_minus_beta, usual.mean_sum, judged_[i]);
    if (usual.samples < std::numeric_limits<std::uint32_t>::max()) ++usual.samples;
    most_samples_ = std::max(most_samples_, usual.samples);
  }
  weights_.extend_to(most_samples_);
  for (std::size_t i = 0; i < patrol_limits_.size(); ++i) {
    if (is_learned(i)) update_patrol_limit(i);
  }
}

/// Whether an error that was judged becomes part of the usual one.
bool ErrorHistory::is_learned(std::size_t index) const {
  return std::isfinite(judged_[index]) && !(excess_of(judged_[index], limits_[index]) > 1);
}

void ErrorHistory::keep_patrol_limits() {
  patrol_limits_.resize(memory_.size());
  for (std::size_t i = 0; i < memory_.size(); ++i) update_patrol_limit(i);
}

void ErrorHistory::update_patrol_limit(std::size_t index) {
  const auto site = static_cast<std::uint32_t>(index % sites());
  const double limit = limit_of(site, reference_of(site, memory_[index], ErrorSource::patrol));
  patrol_limits_[index] = rounded_up(kPatrolMargin * limit);
}

void ErrorHistory::forget() {
  discard();
  std::fill(memory_.begin(), memory_.end(), ErrorState{});
  most_samples_ = 0;
  if (!patrol_limits_.empty()) keep_patrol_limits();
}

bool ErrorHistory::was_measured(UnitIndex unit) const {
  if (!judged_any_) return false;
  const double* const first = judged_.data() + index(unit, 0);
  return std::any_of(first, first + sites(), [](double error) { return !std::isnan(error); });
}

bool ErrorHistory::had_infinite(UnitIndex unit) const {
  if (!judged_any_) return false;
  const double* const first = judged_.data() + index(unit, 0);
  return std::any_of(first, first + sites(), [](double error) { return std::isinf(error); });
}

double ErrorHistory::limit(UnitIndex unit, std::uint32_t site) const {
  return judged_any_ ? limits_[index(unit, site)] : kNothing;
}

std::span<const ErrorState> ErrorHistory::of_unit(UnitIndex unit) const {
  return std::span(memory_).subspan(index(unit, 0), sites());
}

void ErrorHistory::restore_unit(UnitIndex unit, std::span<const ErrorState> states) {
  for (std::uint32_t site = 0; site < sites(); ++site) {
    memory_[index(unit, site)] = states[site];
    most_samples_ = std::max(most_samples_, states[site].samples);
  }
  weights_.extend_to(most_samples_);
  for (std::uint32_t site = 0; site < sites() && !patrol_limits_.empty(); ++site) {
    update_patrol_limit(index(unit, site));
  }
}

}  // namespace gnmr
