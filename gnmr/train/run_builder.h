// SPDX-License-Identifier: Apache-2.0
// How a run begins, or is resumed: data, model, units, folder, supervisor, gate, in this order.
//
// Goals: what cannot work is refused before anything is written, and a start that comes to nothing leaves nothing.
// Non-goals: the loop (trainer.h).
#pragma once

#include <memory>

#include "gnmr/train/model_plan.h"
#include "gnmr/train/run_checkpoint.h"
#include "gnmr/train/run_parts.h"

namespace gnmr::train {

/// What the parts that are not the trainer's own are made by.
struct RunMakers {
  PlanModel plan_model = {};
  MakeExperiment make_experiment = {};  // none: the settings must not ask for an experiment
};

/// Builds one run.
class RunBuilder {
 public:
  /// Makers, and all that the parts refer to, must outlive the builder.
  RunBuilder(RunParts& parts, const RunMakers& makers) : parts_(parts), makers_(makers) {}

  /// Fills in the parts; an `Error` says what is wrong. With more than one rank all of them call it.
  void build();

 private:
  void open_model();
  void open_units();
  void open_experiment();
  void open_folder();
  void start(const RestoredControl& restored);
  void start_supervisor(const RestoredControl& restored);
  run::SupervisorSettings supervision() const;
  BatchSettings batch_settings() const;
  run::RunInfo run_info() const;
  std::unique_ptr<StepGate> make_gate(bool on_device) const;
  Options options_in_force() const;
  bool judges_errors() const;
  bool uses_errors() const;

  RunParts& parts_;
  const RunMakers& makers_;
};

/// What is printed when the run starts.
run::TrainStart start_of(const RunParts& parts);

}  // namespace gnmr::train
