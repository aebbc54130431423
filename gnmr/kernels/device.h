// SPDX-License-Identifier: Apache-2.0
// Whether the kernels can run here.
//
// Goals: one question, which never throws. Non-goals: choosing a device; everything in this layer works on the current
// one.
#pragma once

namespace gnmr::kernels {

/// Whether the kernels were compiled and a CUDA device is there. Without, everything in this layer that takes a stream,
/// and every constructor of an object that does, throws `Error`.
bool available();

}  // namespace gnmr::kernels
