// SPDX-License-Identifier: Apache-2.0
// What is known of batches whose update was not made and that run again, at once or in a later step.
//
// Goals: what a rerun came to, compared with the run before it, also where the process was stopped in between.
// Non-goals: which batches run again (the controller plans that).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gnmr/run/supervisor.h"
#include "gnmr/torch/collective.h"
#include "gnmr/train/batch_numbers.h"

namespace gnmr::train {

/// Held batches of one run.
class HeldBatches {
 public:
  /// Keeps the numbers of a run whose batch comes again.
  void keep(std::int64_t batch, const BatchNumbers& numbers);

  /// What a rerun came to; the numbers of the run before it are dropped. All ranks call it together.
  run::RerunContext compare(std::int64_t batch, const BatchNumbers& rerun, nn::Collective& ranks);

  /// Drops what is known of a batch.
  void drop(std::int64_t batch) { runs_.erase(batch); }

  bool is_empty() const { return runs_.empty(); }

  /// For a checkpoint: loss and squares as bytes, since they may be infinite or NaN. `restore` is an `Error` for text
  /// that is not of a model with so many parameters.
  std::string save() const;
  void restore(const std::string& text, std::size_t parameters);

 private:
  struct Run {
    double loss = 0;
    std::vector<double> squares = {};
    std::optional<double> own_norm = {};  // of this rank's gradients; unknown after a resume
  };

  std::map<std::int64_t, Run> runs_;  // by batch
};

}  // namespace gnmr::train
