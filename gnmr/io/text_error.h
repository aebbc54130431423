// SPDX-License-Identifier: Apache-2.0
// Messages that say which file, and where in it, something is wrong.
//
// Goals: one form for every reader and writer: `norms.csv: line 12, column 3: ...`. Non-goals: deciding what is wrong.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>

#include "gnmr/core/error.h"

namespace gnmr::io {

/// `FILE: line N`.
inline std::string at_line(std::string_view file, std::uint64_t line) {
  return std::string(file) + ": line " + std::to_string(line);
}

/// `FILE: line N, column C`; the column is the number of the cell, from 1.
inline std::string at_cell(std::string_view file, std::uint64_t line, std::size_t column) {
  return at_line(file, line) + ", column " + std::to_string(column);
}

/// An `Error` of the form `WHERE: WHAT`.
inline Error error_at(std::string_view where, std::string_view what) {
  return Error(std::string(where) + ": " + std::string(what));
}

/// `FILE: WHAT: why the operating system refused`, from errno.
inline std::string errno_text(const std::string& file, std::string_view what) {
  const int error = errno;
  return file + ": " + std::string(what) + ": " + std::generic_category().message(error);
}

/// Throws that text as an `Error`: a file that is read.
[[noreturn]] inline void throw_errno(const std::string& file, std::string_view what) {
  throw Error(errno_text(file, what));
}

/// Throws that text as an `OutputError`: a file that is written.
[[noreturn]] inline void throw_output_errno(const std::string& file, std::string_view what) {
  throw OutputError(errno_text(file, what));
}

}  // namespace gnmr::io
