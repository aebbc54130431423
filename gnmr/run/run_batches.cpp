// SPDX-License-Identifier: Apache-2.0
#include "gnmr/run/run_batches.h"

#include <algorithm>
#include <iterator>

namespace gnmr::run {
namespace {

/// `from`, as far on as it is from `begin` to `end`. Unsigned, for damaged files have any number.
std::int64_t moved(std::int64_t from, std::int64_t begin, std::int64_t end) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(from) + static_cast<std::uint64_t>(end) -
                                   static_cast<std::uint64_t>(begin));
}

}  // namespace

RunBatches::RunBatches(std::span<const TrainLine> lines) {
  steps_.reserve(lines.size());
  for (const TrainLine& line : lines) {
    const std::int64_t batch = batch_of(line);
    steps_.push_back({.step = line.step, .batch = batch, .newest = std::max(batch, last())});
  }
}

std::int64_t RunBatches::of(std::int64_t step) const {
  const auto next = std::upper_bound(steps_.begin(), steps_.end(), step,
                                     [](std::int64_t number, const Step& one) { return number < one.step; });
  if (next == steps_.begin()) return step;
  const Step& before = *std::prev(next);
  if (before.step == step) return before.batch;
  return moved(before.newest, before.step, step);
}

std::int64_t RunBatches::first_step(std::int64_t batch) const {
  const auto found = std::lower_bound(steps_.begin(), steps_.end(), batch,
                                      [](const Step& one, std::int64_t number) { return one.newest < number; });
  return found != steps_.end() && found->newest == batch ? found->step : step_before(found, batch);
}

std::int64_t RunBatches::last_step(std::int64_t batch) const {
  const auto next = std::upper_bound(steps_.begin(), steps_.end(), batch,
                                     [](std::int64_t number, const Step& one) { return number < one.newest; });
  return step_before(next, batch);
}

/// The step of a batch, counted on from the last step before `next`.
std::int64_t RunBatches::step_before(Place next, std::int64_t batch) const {
  return next == steps_.begin() ? batch : moved(std::prev(next)->step, std::prev(next)->newest, batch);
}

}  // namespace gnmr::run
