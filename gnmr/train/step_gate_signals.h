// SPDX-License-Identifier: Apache-2.0
// What both gates make of the controller's options and plans for the kernels' signals.
//
// Goals: the host's gate and the device's close alike. Non-goals: the gates themselves (step_gate.h).
#pragma once

#include "gnmr/core/options.h"
#include "gnmr/kernels/signals.h"

namespace gnmr::train {

/// The rules of a gate's alarm.
kernels::SignalSettings signal_settings(const Options& options, Selector selector);

}  // namespace gnmr::train
