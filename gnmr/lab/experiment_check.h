// SPDX-License-Identifier: Apache-2.0
// Whether the settings of an experiment are right, by themselves and beside those of their run.
//
// Goals: refused before anything starts, and without torch. Non-goals: the other settings (gnmr/run/train_settings.h).
#pragma once

#include "gnmr/run/train_settings.h"

namespace gnmr::lab {

/// Throws `Error` naming the first setting that is wrong.
void check_experiment(const run::TrainSettings& settings);

/// All settings of a run: `run::validate`, then these.
void check_settings(const run::TrainSettings& settings);

}  // namespace gnmr::lab
