// SPDX-License-Identifier: Apache-2.0
// Numbers and texts in binary files: little-endian, no padding, the same on every machine.
//
// Goals: a reader that never looks beyond its bytes and says where it stopped.
// Non-goals: speed beyond plain copies, any notion of what the bytes mean.
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "gnmr/core/error.h"

namespace gnmr::io {

/// Appends an unsigned number, lowest byte first.
template <std::unsigned_integral Number>
void append_little_endian(std::string& out, Number value) {
  std::array<char, sizeof(Number)> bytes;
  for (std::size_t i = 0; i < sizeof(Number); ++i) {
    bytes[i] = static_cast<char>(static_cast<unsigned char>(static_cast<std::uint64_t>(value) >> (8 * i)));
  }
  out.append(bytes.data(), bytes.size());
}

/// Appends a signed number as the unsigned one with the same bits.
inline void append_little_endian(std::string& out, std::int64_t value) {
  append_little_endian(out, static_cast<std::uint64_t>(value));
}

/// Appends the bits of a double.
inline void append_little_endian(std::string& out, double value) {
  append_little_endian(out, std::bit_cast<std::uint64_t>(value));
}

/// Appends the bits of a float.
inline void append_little_endian(std::string& out, float value) {
  append_little_endian(out, std::bit_cast<std::uint32_t>(value));
}

/// Appends a text behind its length in 32 bits.
inline void append_text(std::string& out, std::string_view text) {
  append_little_endian(out, static_cast<std::uint32_t>(text.size()));
  out += text;
}

/// Takes numbers and texts from the front of some bytes, which must outlive it.
class LittleEndianReader {
 public:
  /// `place` begins every message; `offset` is where `bytes` begin in the whole file.
  LittleEndianReader(std::string_view bytes, std::string place, std::size_t offset = 0)
      : bytes_(bytes), place_(std::move(place)), offset_(offset) {}

  /// The next unsigned number.
  template <std::unsigned_integral Number>
  Number take() {
    const std::string_view raw = take_bytes(sizeof(Number));
    std::uint64_t value = 0;
    for (std::size_t i = sizeof(Number); i-- > 0;) value = (value << 8U) | static_cast<unsigned char>(raw[i]);
    return static_cast<Number>(value);
  }

  /// The next signed number.
  std::int64_t take_signed() { return static_cast<std::int64_t>(take<std::uint64_t>()); }

  /// The next double.
  double take_double() { return std::bit_cast<double>(take<std::uint64_t>()); }

  /// The next float.
  float take_float() { return std::bit_cast<float>(take<std::uint32_t>()); }

  /// The next `count` bytes, as a view.
  std::string_view take_bytes(std::uint64_t count) {
    if (count > left()) {
      fail("expected " + std::to_string(count) + " bytes, there are " + std::to_string(left()));
    }
    const std::string_view taken = bytes_.substr(at_, static_cast<std::size_t>(count));
    at_ += taken.size();
    return taken;
  }

  /// The next text, as a view.
  std::string_view take_text() { return take_bytes(take<std::uint32_t>()); }

  /// Bytes not yet taken.
  std::size_t left() const { return bytes_.size() - at_; }

  /// Where the next byte is in the whole file.
  std::size_t offset() const { return offset_ + at_; }

  /// Throws an `Error` with the place and the offset.
  [[noreturn]] void fail(const std::string& message) const {
    throw Error(place_ + " byte " + std::to_string(offset()) + ": " + message);
  }

 private:
  std::string_view bytes_;
  std::string place_;
  std::size_t offset_;
  std::size_t at_ = 0;
};

}  // namespace gnmr::io
