// SPDX-License-Identifier: Apache-2.0
// The laboratory that a run's settings ask for: injected faults, a rival, or none.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gnmr/train/laboratory.h"

namespace gnmr::engine {

/// As `train::MakeLaboratory` wants it.
std::unique_ptr<train::Laboratory> make_laboratory(const run::TrainSettings& settings,
                                                   const std::vector<std::string>& layer_names);

}  // namespace gnmr::engine
