// SPDX-License-Identifier: Apache-2.0
// Files with one damage each, and the program that reads them: it refuses them with a message that names the file, or
// reads them; it never crashes, never hangs, never takes the memory that a damaged number asks for.
#pragma once

#include "abuse/tally.h"

namespace gnmr::abuse {

/// As many cases as the settings ask for.
void run_corruptions(const Settings& settings, Tally& tally);

}  // namespace gnmr::abuse
