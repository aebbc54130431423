// SPDX-License-Identifier: Apache-2.0
// Whether the kernels can run here.
//
// Goals: questions that never throw. Non-goals: choosing a device; everything in this layer works on the current
// one.
#pragma once

namespace gnmr::kernels {

/// Whether the kernels were compiled and a CUDA device is there. Without, everything in this layer that takes a stream,
/// and every constructor of an object that does, throws `Error`.
bool available();

/// Ten times the compute capability of the current device when it was first asked for, 90 for Hopper; 0 where there is
/// none. Real FP8 products need 90.
int compute_capability();

}  // namespace gnmr::kernels
