// SPDX-License-Identifier: Apache-2.0
#include "gnmr/run/run_batches.h"

#include <algorithm>
#include <iterator>

namespace gnmr::run {

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
  // Unsigned, for damaged files have any number.
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(before.newest) + static_cast<std::uint64_t>(step) -
                                   static_cast<std::uint64_t>(before.step));
}

}  // namespace gnmr::run
