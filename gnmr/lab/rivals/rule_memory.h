// SPDX-License-Identifier: Apache-2.0
// The state of a rule, as bytes for a checkpoint: the rule's name, a version, then its own numbers.
//
// Goals: exact (doubles bit for bit); bytes of another rule, of another version, cut short or with numbers that no rule
// could have are an `Error`. Non-goals: parameters, which the run's settings hold.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include "gnmr/io/json_text.h"
#include "gnmr/io/little_endian.h"

namespace gnmr::lab {

/// Below it squares of squares are finite; no gradient of 32 bits has such a norm.
inline constexpr double kLargestNumber = 1e75;

/// Whether a rule may take `value` into its memory: neither NaN nor infinite, nor so large that its square would be.
inline bool is_usable(double value) { return std::abs(value) < kLargestNumber; }

/// Bytes that begin with name and version.
inline std::string begin_memory(std::string_view rule, std::uint32_t version) {
  std::string bytes;
  io::append_text(bytes, rule);
  io::append_little_endian(bytes, version);
  return bytes;
}

/// Reads what `begin_memory` began; the bytes must outlive it.
class MemoryReader {
 public:
  MemoryReader(std::string_view bytes, std::string_view rule, std::uint32_t version)
      : reader_(bytes, "the memory of the rule " + std::string(rule) + ":") {
    const std::string_view name = reader_.take_text();
    if (name != rule) reader_.fail("expected " + io::in_quotes(rule) + ", got " + io::in_quotes(name));
    const auto found = reader_.take<std::uint32_t>();
    if (found != version) {
      reader_.fail("expected version " + std::to_string(version) + ", got " + std::to_string(found));
    }
  }

  /// A number that `is_usable`.
  double take_number() {
    const double value = reader_.take_double();
    if (!is_usable(value)) reader_.fail("expected a finite number, got " + std::to_string(value));
    return value;
  }

  /// Such a number that is not negative.
  double take_norm() {
    const double value = take_number();
    if (value < 0) reader_.fail("expected a norm, got " + std::to_string(value));
    return value;
  }

  /// The square of such a number.
  double take_square() {
    const double value = reader_.take_double();
    if (!(value >= 0 && value <= kLargestNumber * kLargestNumber)) {
      reader_.fail("expected a square, got " + std::to_string(value));
    }
    return value;
  }

  /// A whole number from 0 to `most`.
  std::int64_t take_count(std::int64_t most) {
    const std::int64_t value = reader_.take_signed();
    if (value < 0 || value > most) {
      reader_.fail("expected a number from 0 to " + std::to_string(most) + ", got " + std::to_string(value));
    }
    return value;
  }

  /// How many records of `bytes` bytes each follow, which must be there and nothing else.
  std::size_t take_last_records(std::size_t bytes) {
    const auto count = reader_.take<std::uint64_t>();
    if (count != reader_.left() / bytes || reader_.left() % bytes != 0) {
      reader_.fail("expected " + std::to_string(count) + " records of " + std::to_string(bytes) + " bytes, there are " +
                   std::to_string(reader_.left()) + " bytes");
    }
    return static_cast<std::size_t>(count);
  }

 private:
  io::LittleEndianReader reader_;
};

}  // namespace gnmr::lab
