// SPDX-License-Identifier: Apache-2.0
// CRC-64 (polynomial of ECMA-182, reflected, as in the .xz format).
//
// Goals: any damage within 64 neighbouring bits is found, whatever else is in the file; the same value on every
// machine. Non-goals: protection against someone who means to deceive.
#pragma once

#include <cstdint>
#include <string_view>

namespace gnmr::io {

/// The checksum of `bytes`; with `before`, that of what `before` covers followed by `bytes`.
std::uint64_t crc64(std::string_view bytes, std::uint64_t before = 0);

}  // namespace gnmr::io
