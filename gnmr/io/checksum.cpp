// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/checksum.h"

#include <array>
#include <cstddef>

namespace gnmr::io {
namespace {

constexpr std::uint64_t kPolynomial = 0xC96C5795D7870F42U;
constexpr std::size_t kLanes = 8;

using Table = std::array<std::uint64_t, 256>;

// tables[j][b]: what byte b does to the remainder when j more bytes follow it.
constexpr std::array<Table, kLanes> make_tables() {
  std::array<Table, kLanes> tables{};
  for (std::size_t byte = 0; byte < 256; ++byte) {
    std::uint64_t remainder = byte;
    for (int bit = 0; bit < 8; ++bit) remainder = (remainder >> 1U) ^ ((remainder & 1U) != 0 ? kPolynomial : 0);
    tables[0][byte] = remainder;
  }
  for (std::size_t lane = 1; lane < kLanes; ++lane) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint64_t shorter = tables[lane - 1][byte];
      tables[lane][byte] = (shorter >> 8U) ^ tables[0][shorter & 0xFFU];
    }
  }
  return tables;
}

constexpr std::array<Table, kLanes> kTables = make_tables();

std::uint64_t byte_at(std::string_view bytes, std::size_t at) { return static_cast<unsigned char>(bytes[at]); }

}  // namespace

std::uint64_t crc64(std::string_view bytes, std::uint64_t before) {
  std::uint64_t remainder = ~before;
  std::size_t at = 0;
  for (; bytes.size() - at >= kLanes; at += kLanes) {
    std::uint64_t next = 0;
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const std::uint64_t mixed = ((remainder >> (8 * lane)) & 0xFFU) ^ byte_at(bytes, at + lane);
      next ^= kTables[kLanes - 1 - lane][mixed];
    }
    remainder = next;
  }
  for (; at < bytes.size(); ++at) {
    remainder = (remainder >> 8U) ^ kTables[0][(remainder ^ byte_at(bytes, at)) & 0xFFU];
  }
  return ~remainder;
}

}  // namespace gnmr::io
