// SPDX-License-Identifier: Apache-2.0
// What goes into the controller and what comes out of it.
//
// Views (spans) point into the caller's memory on the way in and into the controller's on the way out; each says how
// long it lives.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <ranges>
#include <span>
#include <string>
#include <type_traits>

#include "gnmr/core/gate_rule.h"

namespace gnmr {

/// Index of a unit, in forward order.
using UnitIndex = std::uint32_t;

/// What can be sent back to high precision on its own.
struct Unit {
  std::string name;        // unique, not empty
  std::int64_t cost = 1;   // >= 1, say multiply-adds
  std::string group = {};  // a block, a pipeline stage; empty: none
  bool forced = false;     // kept high or low by the user: watched, but no candidate and in no budget
};

/// A contiguous range of float or double.
template <class Range>
concept RangeOfNorms = std::ranges::contiguous_range<Range> &&
    (std::same_as<std::ranges::range_value_t<Range>, double> || std::same_as<std::ranges::range_value_t<Range>, float>);

/// A view of norms in float or double; a float is widened before use.
class NormSpan {
 public:
  NormSpan() = default;
  NormSpan(std::span<const double> norms) : data_(norms.data()), size_(norms.size()), is_float_(false) {}
  NormSpan(std::span<const float> norms) : data_(norms.data()), size_(norms.size()), is_float_(true) {}

  /// Any contiguous range of float or double: a vector, an array, a span.
  template <RangeOfNorms Range>
  NormSpan(const Range& range) : NormSpan(std::span<const std::ranges::range_value_t<Range>>(range)) {}

  std::size_t size() const { return size_; }
  bool is_float() const { return is_float_; }
  const float* floats() const { return static_cast<const float*>(data_); }
  const double* doubles() const { return static_cast<const double*>(data_); }

  /// The norm at `index`, widened.
  double operator[](std::size_t index) const {
    return is_float_ ? static_cast<double>(floats()[index]) : doubles()[index];
  }

 private:
  const void* data_ = nullptr;
  std::size_t size_ = 0;
  bool is_float_ = false;
};

/// Gradient norms of one run of a step.
struct Observation {
  std::int64_t step = 0;
  NormSpan norms = {};                         // per unit
  std::span<const std::uint8_t> sampled = {};  // per unit, 0: no sample; empty: every unit has one
};

/// `"none"`, `"non-finite"`, `"rise"`, `"fall"`, `"error"`, `"coarse"` or `"fill"`.
const char* to_string(RiskKind kind);

/// The signals of one unit in one step. What is not defined is NaN: delta and fall of a non-finite norm, all but
/// severity of a norm of 0, everything where there was no sample.
struct Signals {
  bool sampled = false;
  RiskKind risk = RiskKind::none;
  double ratio;     // GNMR
  double delta;     // Delta-GNMR
  double fall;      // Fall-GNMR
  double severity;  // above 1: at risk, if warm
};

/// What the norms of a step say, over all units.
struct Alarm {
  std::int64_t step = 0;
  std::uint32_t sampled = 0;              // units with a sample
  std::uint32_t finite = 0;               // of these, with a finite norm
  double centre = 1;                      // mean ratio of the step, each capped at 2
  bool common = false;                    // the cause is common to the units: their norms admit no unit
  std::span<const UnitIndex> risks = {};  // units at risk, ascending; valid until the next report

  /// Whether any unit is at risk.
  bool raised() const { return !risks.empty(); }
};

/// A unit that asks for recovery; the most severe comes first.
struct Candidate {
  double severity = 0;
  UnitIndex unit = 0;
  RiskKind kind = RiskKind::error;
};

/// The decision of one step. Indices ascend; the views are valid until the next report.
struct Decision {
  std::int64_t step = 0;
  bool common = false;
  std::span<const UnitIndex> recovered = {};  // in recovery in the next step (with lag 1: the one after it)
  std::span<const UnitIndex> admitted = {};   // to acute recovery
  std::span<const UnitIndex> denied = {};
  std::span<const UnitIndex> futile = {};    // released, and still as bad as before
  std::span<const UnitIndex> released = {};  // the futile ones included, and those that lost their place to others
  std::span<const UnitIndex> standing = {};  // of `recovered`, those in standing recovery
  std::span<const UnitIndex> newly_standing = {};  // of these, the ones that were not before
  std::span<const UnitIndex> filling = {};         // of `standing`, those that fill a spare budget
  std::int64_t recovered_cost = 0;
};

}  // namespace gnmr
