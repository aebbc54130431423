// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/line_reader.h"

#include <algorithm>
#include <cstring>

#include "gnmr/io/text_error.h"

namespace gnmr::io {
namespace {

// Small enough to stay in a core's second-level cache between reading and parsing, large enough for few system calls.
constexpr std::size_t kBufferBytes = std::size_t{1} << 18;

// A short file needs no more than its own size, and one byte to see its end.
std::size_t first_buffer_bytes(const ByteSource& source) {
  if (source.bytes_total() == 0) return kBufferBytes;
  return static_cast<std::size_t>(std::min<std::uint64_t>(source.bytes_total() + 1, kBufferBytes));
}

}  // namespace

bool LineReader::next(std::string_view& line) {
  std::size_t searched = 0;
  for (;;) {
    const char* start = buffer_.data() + begin_;
    const std::size_t size = end_ - begin_;
    const void* found = size > searched ? std::memchr(start + searched, '\n', size - searched) : nullptr;
    if (found != nullptr) {
      const auto length = static_cast<std::size_t>(static_cast<const char*>(found) - start);
      line = finish(length, length + 1);
      return true;
    }
    searched = size;
    if (refill()) continue;
    if (size == 0) return false;
    line = finish(size, size);
    return true;
  }
}

void LineReader::rewind() {
  source_.rewind();
  begin_ = end_ = 0;
  line_number_ = 0;
  ending_ = {};
}

bool LineReader::refill() {
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (end_ == buffer_.size()) {
    if (end_ >= kMaxLineBytes) throw error_at(at_line(source_.name(), line_number_ + 1), "the line is too long");
    buffer_.resize(buffer_.empty() ? first_buffer_bytes(source_) : 2 * buffer_.size());
  }
  const std::size_t count = source_.read(std::span(buffer_).subspan(end_));
  end_ += count;
  return count > 0;
}

std::string_view LineReader::finish(std::size_t size, std::size_t with_ending) {
  std::string_view line(buffer_.data() + begin_, size);
  ending_ = with_ending > size ? std::string_view("\n") : std::string_view();
  begin_ += with_ending;
  if (!line.empty() && line.back() == '\r') {
    line.remove_suffix(1);
    ending_ = ending_.empty() ? "\r" : "\r\n";
  }
  if (line_number_ == 0 && line.starts_with(kByteOrderMark)) line.remove_prefix(kByteOrderMark.size());
  ++line_number_;
  return line;
}

}  // namespace gnmr::io
