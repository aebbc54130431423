// SPDX-License-Identifier: Apache-2.0
// Text for people: on standard error, or wherever a terminal is.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace gnmr::app {

/// Writes text as it is. What cannot be said is not worth failing for: the exit status says it too.
inline void put(std::FILE* stream, std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stream);
  std::fflush(stream);
}

/// A line of the program on standard error.
inline void say(const std::string& text) { put(stderr, "gnmr: " + text + "\n"); }

/// A name as it can be shown: control characters, which a terminal would obey, become `?`.
inline std::string printable(std::string_view name) {
  std::string shown(name);
  for (char& character : shown) {
    const auto byte = static_cast<unsigned char>(character);
    if (byte < 0x20 || byte == 0x7F) character = '?';
  }
  return shown;
}

}  // namespace gnmr::app
