// SPDX-License-Identifier: Apache-2.0
// The kill switch of a run: its control file on rank 0, and signals through the observer.
//
// Goals: the same answer on every rank. Non-goals: carrying a mode out.
#pragma once

#include <optional>
#include <string>

#include "gnmr/run/control_file.h"
#include "gnmr/run/engine.h"
#include "gnmr/torch/collective.h"

namespace gnmr::train {

/// A mode that was asked for, and by what.
struct ModeRequest {
  Mode mode = Mode::armed;
  std::string why;  // on rank 0
};

/// Asked before each step, by all ranks together.
class KillSwitch {
 public:
  /// `path` is that of the control file; observer and ranks must outlive it.
  KillSwitch(const std::string& path, run::TrainObserver& observer, nn::Collective& ranks);

  /// What was asked for since the last call, if anything was.
  std::optional<ModeRequest> poll();

 private:
  std::optional<ModeRequest> look();
  void keep(Mode mode);

  std::string path_;
  run::ControlFile file_;
  run::TrainObserver& observer_;
  nn::Collective& ranks_;
};

}  // namespace gnmr::train
