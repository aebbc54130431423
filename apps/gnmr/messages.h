// SPDX-License-Identifier: Apache-2.0
// Text for people: on standard error, or wherever a terminal is.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

#include "gnmr/io/printable.h"

namespace gnmr::app {

/// Writes text as it is. What cannot be said is not worth failing for: the exit status says it too.
inline void put(std::FILE* stream, std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stream);
  std::fflush(stream);
}

/// A line of the program on standard error.
inline void say(const std::string& text) { put(stderr, "gnmr: " + text + "\n"); }

using io::printable;

}  // namespace gnmr::app
