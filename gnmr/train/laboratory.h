// SPDX-License-Identifier: Apache-2.0
// What an experiment may do to a run that it studies, and what it knows of it.
//
// The trainer asks; what answers lives in gnmr/lab, and nothing that detects can see it (tests/lab checks the links).
//
// Goals: a run without a laboratory is untouched. Non-goals: what faults and rivals there are.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gnmr/core/types.h"
#include "gnmr/run/train_settings.h"
#include "gnmr/torch/low_path_hook.h"
#include "gnmr/train/data.h"
#include "gnmr/train/gradient_rule.h"

namespace gnmr::train {

/// One laboratory serves one run. All functions are called by the thread that trains.
class Laboratory {
 public:
  virtual ~Laboratory() = default;

  /// The hook of all low paths; null: none.
  virtual nn::LowPathHook* hook() = 0;

  /// Changes the batch of a step, the same way whenever it runs again.
  virtual void change_batch(std::int64_t step, std::int64_t micro_batch, Batch& batch) = 0;

  /// Faults of whole layers that are in force in a step, as indices of watched layers, ascending.
  virtual std::vector<std::uint32_t> faulty_layers(std::int64_t step) const = 0;

  /// The layers that an oracle would have in recovery in a step: from a fault's first step on, for the lock, at most
  /// `most` at a time; ascending.
  virtual std::vector<std::uint32_t> oracle(std::int64_t step, std::int64_t lock_steps, std::uint32_t most) const = 0;

  /// How many faults are planned; 0: none.
  virtual std::uint64_t fault_count() const = 0;

  /// The truth file as text (docs/files.md); empty where nothing is injected.
  virtual std::string truth_text() const = 0;

  /// The planned faults as JSON Lines (docs/faults.md); empty where nothing is injected.
  virtual std::string fault_list_text() const = 0;

  /// What it remembers of the run so far, for a checkpoint; `restore` is an `Error` for text that is not of this run. A
  /// gradient rule is saved by itself.
  virtual std::string save() const = 0;
  virtual void restore(const std::string& text) = 0;

  /// What may change gradients instead of GNMR; null: nothing.
  virtual GradientRule* gradient_rule() = 0;
};

/// Makes the laboratory that the settings ask for; null where they ask for none.
using MakeLaboratory = std::function<std::unique_ptr<Laboratory>(const run::TrainSettings& settings,
                                                                 const std::vector<std::string>& layer_names)>;

}  // namespace gnmr::train
