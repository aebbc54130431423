// SPDX-License-Identifier: Apache-2.0
// Whether the kernels can run here, and copies of a few bytes from the device's memory.
//
// Goals: questions that never throw. Non-goals: choosing a device; everything in this layer works on the current
// one.
#pragma once

#include <cstddef>

namespace gnmr::kernels {

/// Whether the kernels were compiled and a CUDA device is there. Without, everything in this layer that takes a stream,
/// and every constructor of an object that does, throws `Error`.
bool available();

/// Ten times the compute capability of the current device when it was first asked for, 90 for Hopper; 0 where there is
/// none. Real FP8 GEMMs need 90.
int compute_capability();

/// Queues a copy within the memory of the device.
void copy_on_device(const void* from, void* to, std::size_t size, void* stream);

/// Copies from the memory of the device to the host, behind what the stream has to do; waits for it.
void copy_to_host(const void* from, void* to, std::size_t size, void* stream);

}  // namespace gnmr::kernels
