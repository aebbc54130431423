// SPDX-License-Identifier: Apache-2.0
// What an experiment may do to a run that it studies.
//
// The trainer calls; experiments live in gnmr/lab, and nothing that detects can see them (tests/lab checks the links).
// An experiment overrides what it needs: by default every member leaves the run as it is.
//
// Goals: a run without an experiment is untouched, and the trainer knows no fault, oracle or rival. Non-goals: which
// experiments there are.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gnmr/core/types.h"
#include "gnmr/io/record_sink.h"
#include "gnmr/run/run_folder.h"
#include "gnmr/torch/units.h"
#include "gnmr/train/data.h"
#include "gnmr/train/gradient_rule.h"

namespace gnmr::train {

/// What limits a choice of units in recovery: the controller's lock and budget.
struct ChoiceLimits {
  std::int64_t lock_steps = 1;
  std::uint32_t most = 0;  // units at a time
};

/// One experiment belongs to one run. All functions are called by the thread that trains.
class Experiment {
 public:
  virtual ~Experiment() = default;

  /// The hook of all low paths; null: none.
  virtual nn::LowPathHook* hook() { return nullptr; }

  /// Changes a micro-batch, the same way whenever its batch runs again.
  virtual void change_batch(std::int64_t /*batch*/, std::int64_t /*micro_batch*/, Batch& /*tokens*/) {}

  /// Whether it changes weights before a step.
  virtual bool changes_weights(std::int64_t /*step*/) const { return false; }

  /// Changes them in place: the parameters by their names, and behind these what the optimizer keeps of each
  /// (`NAME.exp_avg`, ...: optimizer.h).
  virtual void change_weights(std::span<const std::pair<std::string, at::Tensor>> /*tensors*/) {}

  /// Whether it chooses the units in recovery instead of the controller.
  virtual bool chooses_units() const { return false; }

  /// The units that it chooses for a step, ascending.
  virtual std::vector<UnitIndex> chosen_units(std::int64_t /*step*/, const ChoiceLimits& /*limits*/,
                                              std::span<const Unit> /*units*/) const {
    return {};
  }

  /// What changes gradients instead of GNMR; null: nothing.
  virtual GradientRule* gradient_rule() { return nullptr; }

  /// Measures something before a batch runs for the first time: `run_batch` is its forward and backward. It must leave
  /// no trace in the run: no gradients, and hooks as they were.
  virtual void measure(std::int64_t /*batch*/, nn::RecoverableUnits& /*units*/,
                       const std::function<void()>& /*run_batch*/) {}

  /// How many faults are planned, and which, in words; 0 and empty: none.
  virtual std::uint64_t fault_count() const { return 0; }
  virtual std::string fault_kinds() const { return {}; }

  /// Opens its files in the folder of the run; on the rank that writes files only.
  virtual void open_files(const run::RunFolder& /*folder*/, io::ExistingFile /*existing*/) {}

  /// Waits at most so long until its lines are with the operating system.
  virtual void flush(std::chrono::milliseconds /*longest*/) {}

  /// Ends its files; how many lines were lost.
  virtual std::uint64_t close_files() { return 0; }

  /// What a checkpoint keeps of it, by names of its own; `restore` gets all entries of a checkpoint, those of others
  /// too, and throws an `Error` for what is not of this run.
  virtual std::map<std::string, std::string> save() const { return {}; }
  virtual void restore(const std::map<std::string, std::string>& /*entries*/) {}
};

/// Makes the experiment that the settings ask for; null where they ask for none.
using MakeExperiment = std::function<std::unique_ptr<Experiment>(const run::TrainSettings& settings,
                                                                 const std::vector<std::string>& layer_names)>;

}  // namespace gnmr::train
