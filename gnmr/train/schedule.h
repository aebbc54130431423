// SPDX-License-Identifier: Apache-2.0
// The learning rate (a straight warm-up, then half a cosine), and what comes every so many steps.
//
// Goals: pure functions, so that a resumed run needs no state. The learning rate is one of the batch, so that one that
// was held and comes again (lag 1) has the rate that it would have had. Non-goals: other shapes.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace gnmr::train {

/// How the learning rate goes over the batches of a run; each is one step of the schedule.
struct Schedule {
  double highest = 0.003;
  double final_share = 0.1;        // of the highest, in the last step
  std::int64_t warmup_steps = 20;  // the highest is reached in the last of them
  std::int64_t steps = 200;
  std::int64_t then_at = 0;  // from this step on the highest is another one; 0: never
  double then_highest = 0;

  bool operator==(const Schedule&) const = default;
};

/// The highest learning rate at a step.
inline double highest_rate(const Schedule& schedule, std::int64_t step) {
  const bool is_changed = schedule.then_highest > 0 && schedule.then_at > 0 && step >= schedule.then_at;
  return is_changed ? schedule.then_highest : schedule.highest;
}

/// The learning rate of a batch, counted from 1; later than the last one it stays what it was there.
inline double learning_rate(const Schedule& schedule, std::int64_t step) {
  const double highest = highest_rate(schedule, step);
  if (step < schedule.warmup_steps) {
    return highest * static_cast<double>(std::max<std::int64_t>(step, 0)) / static_cast<double>(schedule.warmup_steps);
  }
  const std::int64_t falling_steps = schedule.steps - schedule.warmup_steps;
  if (falling_steps <= 0) return highest;
  const double progress =
      std::min(1.0, static_cast<double>(step - schedule.warmup_steps) / static_cast<double>(falling_steps));
  const double cosine = 0.5 * (1 + std::cos(std::numbers::pi * progress));
  return highest * (schedule.final_share + (1 - schedule.final_share) * cosine);
}

/// Whether something that comes every so many steps (0: never) is due after this one.
inline bool is_due(std::int64_t every, std::int64_t step) { return every > 0 && step % every == 0; }

}  // namespace gnmr::train
