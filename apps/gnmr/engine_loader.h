// SPDX-License-Identifier: Apache-2.0
// Finds the training engine, which is a library of its own: commands that do not train start without torch.
#pragma once

#include "gnmr/run/engine.h"

namespace gnmr::app {

/// Loads the engine from beside the program (../lib, or GNMR_ENGINE); an `Error` that says what to do where it is not
/// there. It stays loaded.
run::Engine& load_engine();

}  // namespace gnmr::app
