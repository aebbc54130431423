// SPDX-License-Identifier: Apache-2.0
// Files that are read or replaced as a whole.
//
// Goals: a reader of the path finds the old content or the new one, never a mixture, whatever fails on the way; no
// memory for a file that is larger than its reader accepts.
// Non-goals: seeking, locking between two writers (the last one wins).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "gnmr/io/file_descriptor.h"

namespace gnmr::io {

/// The content of a file; an `Error` with the path where it cannot be read or is larger than `largest` bytes.
std::string read_whole_file(const std::string& path, std::size_t largest = std::numeric_limits<std::size_t>::max());

/// The first `count` bytes of a file, or all of a shorter one.
std::string read_file_start(const std::string& path, std::size_t count);

/// Content in the place of a regular file, which need not exist, for what should not be in memory at once. The bytes
/// are written beside it; on an `Error`, or without `commit`, the old file is as it was and nothing is left beside it.
class StreamedFile {
 public:
  explicit StreamedFile(const std::string& path);
  StreamedFile(const StreamedFile&) = delete;
  StreamedFile& operator=(const StreamedFile&) = delete;
  ~StreamedFile();

  /// Appends.
  void write(std::string_view bytes);

  /// The CRC-32C of what was appended since the last call.
  std::uint32_t take_crc32c() { return std::exchange(crc32c_, 0); }

  /// Forces everything to the disk and puts it in the place of the old file.
  void commit();

 private:
  void open_beside();

  std::string target_;
  std::string folder_;
  std::string temporary_;
  FileDescriptor file_;
  std::uint32_t crc32c_ = 0;
};

/// The same for content that is in memory.
void replace_file(const std::string& path, std::string_view content);

}  // namespace gnmr::io
