// SPDX-License-Identifier: Apache-2.0
// What the engine's runs are made by: the model, and the experiment that the settings ask for: injected faults, an
// oracle, a rival's rule, or none.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gnmr/train/experiment.h"
#include "gnmr/train/run_builder.h"

namespace gnmr::engine {

/// As `train::MakeExperiment` wants it.
std::unique_ptr<train::Experiment> make_experiment(const run::TrainSettings& settings,
                                                   const std::vector<std::string>& layer_names);

/// All that a trainer wants made.
train::RunMakers makers();

}  // namespace gnmr::engine
