// SPDX-License-Identifier: Apache-2.0
// Names and texts from files as a terminal may have them.
#pragma once

#include <string>
#include <string_view>

namespace gnmr::io {

/// A text as it can be shown: control characters, which a terminal would obey, become `?`.
inline std::string printable(std::string_view text) {
  std::string shown(text);
  for (char& character : shown) {
    const auto byte = static_cast<unsigned char>(character);
    if (byte < 0x20 || byte == 0x7F) character = '?';
  }
  return shown;
}

}  // namespace gnmr::io
