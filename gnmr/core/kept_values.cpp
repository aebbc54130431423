// SPDX-License-Identifier: Apache-2.0
#include "gnmr/core/kept_values.h"

#include <algorithm>
#include <span>

namespace gnmr {
namespace {

void move_kept(double* to, const double* from) {
  to[0] = from[0];
  to[kBlockUnits] = from[kBlockUnits];
}

}  // namespace

// A first ratio and inverse are 1, and the oldest kept stands for all that are missing: a ring full of 1 is empty.
KeptValues::KeptValues(std::size_t padded_units, std::size_t window)
    : slots_(window + 1), values_(padded_units * slots_ * 2, 1.0) {}

void KeptValues::see_step() {
  seen_ratio_slot_ = new_slot_;
  seen_oldest_slot_ = oldest_slot();
}

void KeptValues::turn(std::size_t units, const StepExceptions& exceptions) {
  if (exceptions.not_kept() <= units / 2) {
    // A unit that does not take part moves its values on with the ring.
    const std::span<const UnitIndex> unsampled = exceptions.unsampled();
    for (std::size_t i = 0; i < unsampled.size(); ++i) {
      if (i + kPrefetchUnits < unsampled.size()) prefetch(unsampled[i + kPrefetchUnits]);
      turn_back(unsampled[i]);
    }
    for (const UnitIndex unit : exceptions.others()) {
      if (exceptions.has(unit, status::kNotKept)) turn_back(unit);
    }
    new_slot_ = next_slot(new_slot_);
    return;
  }
  // The ring stands still; units that take part turn their own.
  for (UnitIndex unit = 0; unit < units; ++unit) {
    if (!exceptions.has(unit, status::kNotKept)) turn_alone(unit);
  }
  seen_ratio_slot_ = previous_slot(new_slot_);
  seen_oldest_slot_ = new_slot_;
}

void KeptValues::turn_back(UnitIndex unit) {
  std::size_t to = new_slot_;
  for (std::size_t moves = slots_ - 1; moves > 0; --moves) {
    const std::size_t from = previous_slot(to);
    move_kept(at(unit, to), at(unit, from));
    to = from;
  }
}

/// The oldest values go where the new ones stood.
void KeptValues::turn_alone(std::size_t unit) {
  double spare[2 * kBlockUnits];
  move_kept(spare, at(unit, new_slot_));
  std::size_t to = new_slot_;
  for (std::size_t moves = slots_ - 1; moves > 0; --moves) {
    const std::size_t from = next_slot(to);
    move_kept(at(unit, to), at(unit, from));
    to = from;
  }
  move_kept(at(unit, to), spare);
}

void KeptValues::prefetch(UnitIndex unit) const {
  // Longer rings go on by themselves: the machine foresees a walk through neighbouring lines.
  const std::size_t lines = std::min<std::size_t>(slots_, 8);
  for (std::size_t slot = 0; slot < lines; ++slot) __builtin_prefetch(at(unit, slot));
}

}  // namespace gnmr
