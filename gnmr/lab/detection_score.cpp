// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/detection_score.h"

#include <algorithm>
#include <limits>

namespace gnmr::lab {
namespace {

double share(double part, std::uint64_t whole) {
  return whole == 0 ? std::numeric_limits<double>::quiet_NaN() : part / static_cast<double>(whole);
}

}  // namespace

DetectionScore::DetectionScore(std::size_t units, std::span<const UnitIndex> recovered)
    : units_(units), recovered_(recovered.begin(), recovered.end()) {}

/// The fault of a unit in a step; null where it had none. Steps that come again are of late.
DetectionScore::UnitFault* DetectionScore::fault_in(UnitIndex unit, std::int64_t step) {
  std::vector<UnitFault>& faults = units_[unit].faults;
  const auto begun =
      std::find_if(faults.rbegin(), faults.rend(), [&](const UnitFault& fault) { return fault.first_step <= step; });
  return begun != faults.rend() && step <= begun->last_step ? &*begun : nullptr;
}

void DetectionScore::find(UnitFault& fault) {
  if (fault.found) return;
  fault.found = true;
  ++found_;
}

void DetectionScore::add(std::span<const std::uint8_t> faulty, const Decision& decision) {
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    UnitFaults& of_unit = units_[unit];
    const bool now = faulty[unit] != 0;
    if (now && !of_unit.faulty) {
      of_unit.faults.push_back({.first_step = decision.step});
      ++faults_;
    }
    of_unit.faulty = now;
    if (now) of_unit.faults.back().last_step = decision.step;
  }
  add_again(decision);
}

void DetectionScore::add_again(const Decision& decision) {
  for (const UnitIndex unit : recovered_) {
    if (UnitFault* const fault = fault_in(unit, decision.step)) find(*fault);
  }
  for (const UnitIndex unit : decision.admitted) {
    ++admissions_;
    UnitFault* const fault = fault_in(unit, decision.step);
    if (fault == nullptr) continue;
    ++true_admissions_;
    if (fault->found) continue;
    find(*fault);
    ++delays_;
    const auto delay = static_cast<double>(decision.step - fault->first_step);
    delay_sum_ += delay;
    largest_delay_ = std::max(largest_delay_, delay);
  }
  recovered_.assign(decision.recovered.begin(), decision.recovered.end());
}

double DetectionScore::recall() const { return share(static_cast<double>(found_), faults_); }
double DetectionScore::precision() const { return share(static_cast<double>(true_admissions_), admissions_); }
double DetectionScore::mean_delay() const { return share(delay_sum_, delays_); }
double DetectionScore::largest_delay() const {
  return delays_ == 0 ? std::numeric_limits<double>::quiet_NaN() : largest_delay_;
}

}  // namespace gnmr::lab
