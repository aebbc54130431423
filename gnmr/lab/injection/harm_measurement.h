// SPDX-License-Identifier: Apache-2.0
// How far a fault, alone, moves the gradient of a batch.
//
// Goals: no trace in the run: afterwards there are no gradients, hooks and memory are as they were. Non-goals: files.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "gnmr/torch/units.h"

namespace gnmr::lab {

/// A layer whose fault is in force, and how far that moves the gradient.
struct LayerHarm {
  std::uint32_t layer = 0;
  double distance = 0;  // relative to the gradient without faults; may be infinite
};

/// Runs the batch without faults, then once with the fault of each of these layers that runs low; `run_batch` is
/// forward and backward. `hook` is that of all low paths.
std::vector<LayerHarm> measure_harm(nn::RecoverableUnits& units, std::span<const std::uint32_t> faulty_layers,
                                    nn::LowPathHook* hook, const std::function<void()>& run_batch);

}  // namespace gnmr::lab
