// SPDX-License-Identifier: Apache-2.0
// The last ratios and inverses of every unit, of which a change takes the oldest.
//
// They lie in a ring that turns for all units together; the few that do not take part in a step are turned back. The
// new values stand beside the kept ones until the ring turns.
// Goals: a block of units fills one cache line per slot; no allocation after construction. Non-goals: which units take
// part (step_exceptions.h).
#pragma once

#include <cstddef>

#include "gnmr/core/aligned_array.h"
#include "gnmr/core/signal_kernels.h"
#include "gnmr/core/step_exceptions.h"
#include "gnmr/core/types.h"

namespace gnmr {

/// The ring of all units.
class KeptValues {
 public:
  /// An empty ring for so many units (whole blocks) and steps.
  KeptValues(std::size_t padded_units, std::size_t window);

  /// The ratio of a unit in a slot; its inverse lies kBlockUnits further on.
  double* at(std::size_t unit, std::size_t slot) { return values_.data() + index(unit, slot); }
  const double* at(std::size_t unit, std::size_t slot) const { return values_.data() + index(unit, slot); }

  std::size_t slots() const { return slots_; }
  std::size_t new_slot() const { return new_slot_; }
  std::size_t oldest_slot() const { return next_slot(new_slot_); }
  std::size_t next_slot(std::size_t slot) const { return slot + 1 == slots_ ? 0 : slot + 1; }
  std::size_t previous_slot(std::size_t slot) const { return (slot == 0 ? slots_ : slot) - 1; }

  /// A step was observed: its values stand in the new slot.
  void see_step();

  /// Takes the observed values of the units that take part into the ring.
  void turn(std::size_t units, const StepExceptions& exceptions);

  /// Where the observed values of a unit that took part lie now, and the oldest ones before them.
  const double* seen_ratio(UnitIndex unit) const { return at(unit, seen_ratio_slot_); }
  const double* seen_oldest(UnitIndex unit) const { return at(unit, seen_oldest_slot_); }

 private:
  std::size_t index(std::size_t unit, std::size_t slot) const {
    return ((unit / kBlockUnits) * slots_ + slot) * (2 * kBlockUnits) + unit % kBlockUnits;
  }
  void turn_back(UnitIndex unit);
  void turn_alone(std::size_t unit);
  void prefetch(UnitIndex unit) const;

  std::size_t slots_;         // window + 1
  std::size_t new_slot_ = 0;  // the oldest kept is the next one
  std::size_t seen_ratio_slot_ = 0;
  std::size_t seen_oldest_slot_ = 0;
  AlignedArray<double> values_;
};

}  // namespace gnmr
