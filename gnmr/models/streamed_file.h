// SPDX-License-Identifier: Apache-2.0
// A file that is written piece by piece and takes its place as a whole.
//
// The manner is that of gnmr/io/whole_file.h, for content that should not be in memory at once.
//
// Goals: on any failure the old file is as it was and nothing is left beside it. Non-goals: reading, seeking.
#pragma once

#include <string>
#include <string_view>

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

  /// Forces everything to the disk and puts it in the place of the old file.
  void commit();

 private:
  void open_beside();

  std::string target_;
  std::string folder_;
  std::string temporary_;
  io::FileDescriptor file_;
};

}  // namespace gnmr::models
