// SPDX-License-Identifier: Apache-2.0
// Which batch each step of a run ran. They have the same number until a batch is held (lag 1) and comes again in a
// later step (docs/algorithm.md, *With a gate*).
//
// Goals: what is known by batch (injected faults, their harm) beside what is known by step (journal, metrics).
// Non-goals: which batches were held, and why.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gnmr/run/metrics.h"

namespace gnmr::run {

/// The batch of the step of a line.
inline std::int64_t batch_of(const TrainLine& line) { return line.batch.value_or(line.step); }

/// The batches of the steps of a metrics file.
class RunBatches {
 public:
  /// Lines by ascending steps.
  explicit RunBatches(std::span<const TrainLine> lines);

  /// The batch of a step. Where the step has no line (it could not be written), it ran a fresh batch, as far as is
  /// known.
  std::int64_t of(std::int64_t step) const;

  /// The first step that ran a batch, and the last one before the next fresh batch. One that has not come yet is
  /// expected as if all before it were fresh.
  std::int64_t first_step(std::int64_t batch) const;
  std::int64_t last_step(std::int64_t batch) const;

  /// The last batch that ran; 0: none is known. Runs of N steps have N batches, some of which come again.
  std::int64_t last() const { return steps_.empty() ? 0 : steps_.back().newest; }

 private:
  struct Step {
    std::int64_t step = 0;
    std::int64_t batch = 0;
    std::int64_t newest = 0;  // of this step's batch and all before
  };

  using Place = std::vector<Step>::const_iterator;
  std::int64_t step_before(Place next, std::int64_t batch) const;

  std::vector<Step> steps_;
};

}  // namespace gnmr::run
