// SPDX-License-Identifier: Apache-2.0
// The settings of a training run on a command line: a flag for each, derived from gnmr::run::setting_specs().
#pragma once

#include "gnmr/option_flags.h"
#include "gnmr/run/train_settings.h"

namespace CLI {
class App;
}

namespace gnmr::app {

/// Collects flags; `settings` puts them together after the command line has been read.
class TrainFlags {
 public:
  /// Adds the flags to `command`; this object must outlive it.
  void add_to(CLI::App& command);

  /// The settings with the controller's options, checked.
  run::TrainSettings settings() const;

 private:
  run::TrainSettings settings_;
  OptionFlags options_;
};

}  // namespace gnmr::app
