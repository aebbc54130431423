// SPDX-License-Identifier: Apache-2.0
// The units that were not plainly usual in the last observed step, and those of them at risk. All others have status 0,
// so that a calm step writes nothing here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "gnmr/core/aligned_array.h"
#include "gnmr/core/signal_kernels.h"
#include "gnmr/core/types.h"

namespace gnmr {

// Units without a sample lie far apart; this many ahead their memory is asked for.
inline constexpr std::size_t kPrefetchUnits = 8;

/// Written by the passes over the units, read by what follows in the same step.
class StepExceptions {
 public:
  explicit StepExceptions(std::size_t padded_units)
      : status_(padded_units, 0),
        unsampled_(padded_units + kBlockUnits),
        others_(padded_units + kBlockUnits),
        risks_(padded_units),
        risk_records_(padded_units) {}

  /// No unit is an exception any more.
  void clear() {
    for (const UnitIndex unit : others()) status_[unit] = 0;
    for (const UnitIndex unit : unsampled()) status_[unit] = 0;
    totals_ = {};
  }

  /// Where the passes write.
  ExceptionArrays arrays() {
    return {status_.data(), unsampled_.data(), others_.data(), risks_.data(), risk_records_.data()};
  }

  /// How much they wrote.
  void take(const SignalTotals& totals) { totals_ = totals; }

  bool has(UnitIndex unit, std::uint8_t bits) const { return (status_[unit] & bits) != 0; }
  RiskKind risk(UnitIndex unit) const { return static_cast<RiskKind>(status_[unit] >> status::kRiskShift); }

  std::span<const UnitIndex> unsampled() const { return {unsampled_.data(), totals_.unsampled}; }
  std::span<const UnitIndex> others() const { return {others_.data(), totals_.exceptions}; }

  /// How many did not join the kept values.
  std::size_t not_kept() const { return totals_.unsampled + totals_.not_kept; }

  /// Units at risk, ascending, with a record each.
  std::span<const UnitIndex> risks() const { return {risks_.data(), totals_.risks}; }
  std::span<const RiskRecord> records() const { return {risk_records_.data(), totals_.risks}; }

 private:
  AlignedArray<std::uint8_t> status_;
  AlignedArray<UnitIndex> unsampled_, others_, risks_;
  AlignedArray<RiskRecord> risk_records_;
  SignalTotals totals_;
};

}  // namespace gnmr
