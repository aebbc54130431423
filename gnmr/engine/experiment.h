// SPDX-License-Identifier: Apache-2.0
// The experiment that a run's settings ask for: injected faults, an oracle, a rival's rule, or none.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gnmr/train/experiment.h"

namespace gnmr::engine {

/// As `train::MakeExperiment` wants it.
std::unique_ptr<train::Experiment> make_experiment(const run::TrainSettings& settings,
                                                   const std::vector<std::string>& layer_names);

}  // namespace gnmr::engine
