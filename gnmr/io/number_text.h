// SPDX-License-Identifier: Apache-2.0
// Numbers as text, the same everywhere: in traces, in logs, in what we write.
//
// A number is decimal with optional sign and exponent (`.5` and `5.` are numbers), or `nan`, `inf`, `infinity` in any
// case with optional sign. Too large is infinity, too small is 0.
//
// Goals: exact rounding, no locale, no allocation, the speed of `std::from_chars`.
// Non-goals: hexadecimal, digit separators, NaN payloads.
#pragma once

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>

namespace gnmr::io {

/// Reads the number at the start of [begin, end), whatever follows it; where it ends, or `begin` where there is none.
const char* scan_number(const char* begin, const char* end, double& value);

/// Reads `text` as one number, all of it; false where it is none.
bool parse_number(std::string_view text, double& value);

/// Reads `text` as a whole number of 64 bits: optional sign, digits; false where it is none or does not fit.
bool parse_whole(std::string_view text, std::int64_t& value);

/// Reads a whole number that may be written as 12 or 12.0; false where it is none, or is 2^53 or more with a point.
bool parse_whole_value(std::string_view text, std::int64_t& value);

/// Appends the shortest text that `parse_number` reads back as the same double.
void append_number(std::string& text, double value);

/// Whether `character` is a space or a tab.
constexpr bool is_blank(char character) { return character == ' ' || character == '\t'; }

/// Whether `character` is one of 0 to 9.
constexpr bool is_digit(char character) { return character >= '0' && character <= '9'; }

/// The lower-case form of an ASCII letter; any other character as it is.
constexpr char to_lower(char character) {
  return character >= 'A' && character <= 'Z' ? static_cast<char>(character - 'A' + 'a') : character;
}

/// `text` without spaces and tabs at either end.
std::string_view trim_blanks(std::string_view text);

/// Whether `text` is nothing but spaces and tabs.
bool is_white(std::string_view text);

}  // namespace gnmr::io
