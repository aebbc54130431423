// SPDX-License-Identifier: Apache-2.0
// Training runs that are killed, or asked to stop, at random moments and resumed with the same command until they are
// done. They must end as a run that was left alone: same weights, same decisions, same files.
//
// The configuration of a run and what is done to it follow from the seed; when exactly a signal arrives does not.
#pragma once

#include "abuse/tally.h"

namespace gnmr::abuse {

/// Cases until so many signals were delivered to running programs as the settings ask for.
void run_kills(const Settings& settings, Tally& tally);

}  // namespace gnmr::abuse
