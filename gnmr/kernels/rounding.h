// SPDX-License-Identifier: Apache-2.0
// Rounds a matrix to a format and back: what `formats::fake_quantise` leaves of its values, on a device.
//
// Goals: the numbers of gnmr/formats, bit for bit, for every format, scale kind and group; two passes over the matrix;
// nothing waits for the device. It makes recipes without FP8 GEMMs (INT, MX, NVFP4) affordable on a GPU.
// Non-goals: data of the format itself (casts.h), stochastic rounding, statistics, gaps between rows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gnmr/formats/scaling.h"

namespace gnmr::kernels {

/// One matrix to round. Pointers are to device memory that must live until the stream has passed; `rounded` may be
/// `matrix` itself.
struct RoundingTask {
  const float* matrix = nullptr;
  float* rounded = nullptr;
  std::uint64_t rows = 0;
  std::uint64_t columns = 0;
  formats::Format format = formats::Format::e4m3;  // not e8m0
  formats::Overflow overflow = formats::Overflow::saturate;
  formats::Scaling scaling = {};  // nvfp4: the scale of the tensor is found
};

/// Bytes of device memory that rounding works in: its contents do not matter, and no other stream may use it meanwhile.
std::size_t rounding_workspace_bytes(const RoundingTask& task);

/// Rounds. The workspace begins at a multiple of 16 bytes. An `Error`, with nothing done, for a task that cannot be.
void round_on_device(const RoundingTask& task, void* workspace, void* stream);

}  // namespace gnmr::kernels
