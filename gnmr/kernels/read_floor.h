// SPDX-License-Identifier: Apache-2.0
// The plain read kernel: what reading memory costs when nothing is done with it. Benchmarks compare with it.
//
// Goals: as fast as memory can be read by loads. Non-goals: a result; the bytes are folded into one word so that the
// loads stay.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gnmr::kernels {

/// In which order blocks read: each its own piece, or all side by side over the whole array. The faster is the floor.
enum class ReadOrder : std::uint8_t { pieces, strides };

/// Reads `bytes` (rounded down to 16) from a 16-byte boundary on; `sink` is one word of device memory.
void read_floor(const void* data, std::size_t bytes, ReadOrder order, std::uint32_t* sink, void* stream);

/// The same on the host: all words folded with exclusive or; the kernel's word is this one.
std::uint32_t reference_fold(const void* data, std::size_t bytes);

}  // namespace gnmr::kernels
