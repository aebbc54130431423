// SPDX-License-Identifier: Apache-2.0
// Pages that the program writes.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "gnmr/exit_codes.h"
#include "gnmr/io/whole_file.h"

namespace gnmr::app {

/// A slip such as `--out run/run.json` must not cost a run. Throws `CommandError`.
inline void refuse_to_replace_other_files(const std::string& path) {
  constexpr std::string_view kStart = "<!doctype html>";
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored) || std::filesystem::file_size(path, ignored) == 0) return;
  if (with_exit_code(kOutputError, [&] { return io::read_file_start(path, kStart.size()); }) != kStart) {
    throw CommandError(kUsageError, path + ": is there and is no report: name another file for --out");
  }
}

}  // namespace gnmr::app
