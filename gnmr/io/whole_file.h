// SPDX-License-Identifier: Apache-2.0
// Files that are read or replaced as a whole.
//
// Goals: a reader of the path finds the old content or the new one, never a mixture, whatever fails on the way; no
// memory for a file that is larger than its reader accepts.
// Non-goals: streams, locking between two writers (the last one wins).
#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <string_view>

namespace gnmr::io {

/// The content of a file; an `Error` with the path where it cannot be read or is larger than `largest` bytes.
std::string read_whole_file(const std::string& path, std::size_t largest = std::numeric_limits<std::size_t>::max());

/// The first `count` bytes of a file, or all of a shorter one.
std::string read_file_start(const std::string& path, std::size_t count);

/// Puts `content` in the place of a regular file, which need not exist. The bytes are written beside it, forced to the
/// disk and renamed. On an `Error` the old file is as it was and nothing is left beside it.
void replace_file(const std::string& path, std::string_view content);

}  // namespace gnmr::io
