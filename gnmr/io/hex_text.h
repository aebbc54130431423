// SPDX-License-Identifier: Apache-2.0
// Bytes as hexadecimal text: for values that JSON cannot hold, infinities and NaN among them.
//
// Goals: any bytes come back as they were. Non-goals: speed.
#pragma once

#include <string>
#include <string_view>

namespace gnmr::io {

/// Any bytes as text, two digits each.
inline std::string hex_text(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const char byte : bytes) {
    const auto value = static_cast<unsigned char>(byte);
    text += {kDigits[value >> 4U], kDigits[value & 15U]};
  }
  return text;
}

/// The bytes of such a text; any other text gives other bytes, which their owner refuses.
inline std::string bytes_of_hex(std::string_view text) {
  const auto value = [](char digit) { return digit <= '9' ? digit - '0' : digit - 'a' + 10; };
  std::string bytes;
  for (std::size_t index = 0; index + 1 < text.size(); index += 2) {
    bytes += static_cast<char>(value(text[index]) * 16 + value(text[index + 1]));
  }
  return bytes;
}

}  // namespace gnmr::io
