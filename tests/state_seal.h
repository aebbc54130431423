// SPDX-License-Identifier: Apache-2.0
// A damaged state file with a right header: without it the checksum keeps every damage from the sections.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "gnmr/io/checksum.h"
#include "gnmr/io/little_endian.h"

namespace gnmr::test {

inline constexpr std::size_t kStateHeaderBytes = 32;

/// The same bytes with magic, version, size and checksum set right; at least `kStateHeaderBytes` of them.
inline std::string sealed_state(const std::string& bytes) {
  std::string start("GNMRSTAT\x01\0\0\0", 12);
  start += bytes.substr(12, 4);
  io::append_little_endian(start, static_cast<std::uint64_t>(bytes.size()));
  const std::string_view body = std::string_view(bytes).substr(kStateHeaderBytes);
  io::append_little_endian(start, io::crc64(body, io::crc64(start)));
  return start.append(body);
}

}  // namespace gnmr::test
