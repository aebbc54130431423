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
    : units_(units), in_recovery_(units, 0) {
  set_recovered(recovered);
}

void DetectionScore::set_recovered(std::span<const UnitIndex> recovered) {
  for (const UnitIndex unit : recovered_) in_recovery_[unit] = 0;
  recovered_.assign(recovered.begin(), recovered.end());
  for (const UnitIndex unit : recovered_) in_recovery_[unit] = 1;
}

void DetectionScore::find(UnitFault& fault) {
  if (fault.found) return;
  fault.found = true;
  ++found_;
}

void DetectionScore::add(std::span<const std::uint8_t> faulty, const Decision& decision) {
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    UnitFault& fault = units_[unit];
    const bool now = faulty[unit] != 0;
    if (now && !fault.faulty) {
      fault = {.first_step = decision.step, .faulty = true, .found = false};
      ++faults_;
    }
    fault.faulty = now;
    if (now && in_recovery_[unit] != 0) find(fault);
  }
  for (const UnitIndex unit : decision.admitted) {
    UnitFault& fault = units_[unit];
    ++admissions_;
    if (!fault.faulty) continue;
    ++true_admissions_;
    if (fault.found) continue;
    find(fault);
    ++delays_;
    const auto delay = static_cast<double>(decision.step - fault.first_step);
    delay_sum_ += delay;
    largest_delay_ = std::max(largest_delay_, delay);
  }
  set_recovered(decision.recovered);
}

double DetectionScore::recall() const { return share(static_cast<double>(found_), faults_); }
double DetectionScore::precision() const { return share(static_cast<double>(true_admissions_), admissions_); }
double DetectionScore::mean_delay() const { return share(delay_sum_, delays_); }
double DetectionScore::largest_delay() const {
  return delays_ == 0 ? std::numeric_limits<double>::quiet_NaN() : largest_delay_;
}

}  // namespace gnmr::lab
