// SPDX-License-Identifier: Apache-2.0
// The lines of a byte source.
//
// Goals: no copy and no allocation per line, lines of any length up to `kMaxLineBytes`, memory for one buffer and the
// longest line. Non-goals: what a line means.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "gnmr/io/byte_source.h"

namespace gnmr::io {

/// What some editors put before the first character of a UTF-8 file.
inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

/// A longer line is an error: no log has one, and memory must end somewhere.
inline constexpr std::size_t kMaxLineBytes = std::size_t{1} << 30;

/// Gives the lines of a source one after the other; a byte-order mark at the start is left out.
class LineReader {
 public:
  /// The source must outlive the reader.
  explicit LineReader(ByteSource& source) : source_(source) {}

  /// The next line without its LF or CRLF, valid until the next call; false at the end.
  bool next(std::string_view& line);

  /// The number of the line given last, from 1.
  std::uint64_t line_number() const { return line_number_; }

  /// What ended the line given last: LF, CRLF, or at the end of the file a part of it.
  std::string_view ending() const { return ending_; }

  /// Starts again at the first line; the source must be able to.
  void rewind();

 private:
  bool refill();
  std::string_view finish(std::size_t size, std::size_t with_ending);

  ByteSource& source_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0;  // what has not been given as a line: [begin_, end_)
  std::size_t end_ = 0;
  std::uint64_t line_number_ = 0;
  std::string_view ending_ = {};
};

}  // namespace gnmr::io
