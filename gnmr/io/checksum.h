// SPDX-License-Identifier: Apache-2.0
// CRC-64 (polynomial of ECMA-182, reflected, as in the .xz format) and CRC-32C (Castagnoli, as in iSCSI, ext4 and
// TensorBoard's records).
//
// Goals: any damage within as many neighbouring bits as the checksum has is found, whatever else is in the file; the
// same value on every machine; CRC-32C at the speed of memory where the machine has an instruction for it.
// Non-goals: protection against someone who means to deceive.
#pragma once

#include <cstdint>
#include <string_view>

namespace gnmr::io {

/// The checksum of `bytes`; with `before`, that of what `before` covers followed by `bytes`.
std::uint64_t crc64(std::string_view bytes, std::uint64_t before = 0);

/// The same with CRC-32C.
std::uint32_t crc32c(std::string_view bytes, std::uint32_t before = 0);

/// `crc32c` without the machine's instruction; for machines that have none, and for tests.
std::uint32_t portable_crc32c(std::string_view bytes, std::uint32_t before = 0);

}  // namespace gnmr::io
