// SPDX-License-Identifier: Apache-2.0
// A file that is written piece by piece and takes its place as a whole.
//
// The manner is that of gnmr/io/whole_file.h, for content that should not be in memory at once.
//
// Goals: on any failure the old file is as it was and nothing is left beside it. Non-goals: reading, seeking.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "gnmr/io/file_descriptor.h"

namespace gnmr::models {

/// Created beside `path`; gone again unless `commit` is called.
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
  io::FileDescriptor file_;
  std::uint32_t crc32c_ = 0;
};

}  // namespace gnmr::models
