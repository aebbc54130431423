// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/record_sink.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "gnmr/core/error.h"
#include "gnmr/io/text_error.h"
#include "gnmr/io/torn_record.h"

namespace gnmr::io {
namespace {

constexpr std::string_view kStandardOutput = "-";
constexpr std::size_t kDirectBufferBytes = std::size_t{1} << 18;

// Where the last whole line of a file ends.
std::uint64_t end_of_last_line(const FileDescriptor& file, std::uint64_t size, const std::string& path) {
  std::string chunk(std::size_t{1} << 16, '\0');
  while (size > 0) {
    const std::size_t wanted = static_cast<std::size_t>(std::min<std::uint64_t>(chunk.size(), size));
    const ssize_t got = ::pread(file.get(), chunk.data(), wanted, static_cast<off_t>(size - wanted));
    if (got < 0 && errno == EINTR) continue;
    if (got != static_cast<ssize_t>(wanted)) throw_errno(path, "cannot read its end");
    const std::size_t found = std::string_view(chunk.data(), wanted).rfind('\n');
    if (found != std::string_view::npos) return size - wanted + found + 1;
    size -= wanted;
  }
  return 0;
}

std::uint64_t whole_size(const FileDescriptor& file, std::uint64_t size, const RecordShape& shape,
                         const std::string& path) {
  if (shape.record_bytes == 0) return end_of_last_line(file, size, path);
  if (size < shape.header_bytes) return 0;
  return size - (size - shape.header_bytes) % shape.record_bytes;
}

class DirectSink : public RecordSink {
 public:
  DirectSink(FileDescriptor file, std::string path, const RecordShape& shape)
      : file_(std::move(file)), path_(std::move(path)), shape_(shape) {}

  ~DirectSink() override {
    try {
      close({});
    } catch (const Error&) {
      // Whoever cares calls close.
    }
  }

  void append(std::string_view records) override {
    if (!file_.is_open()) return;
    buffer_ += records;
    if (buffer_.size() >= kDirectBufferBytes) write_buffer();
  }

  bool flush(std::chrono::milliseconds) override {
    if (file_.is_open()) write_buffer();
    return true;
  }

  bool close(std::chrono::milliseconds longest) override {
    flush(longest);
    if (file_.close() != 0) throw_output_errno(path_, "cannot write to it");
    return true;
  }

  std::uint64_t dropped() const override { return dropped_; }

 private:
  void write_buffer() {
    std::size_t written = 0;
    while (written < buffer_.size()) {
      const ssize_t count = ::write(file_.get(), buffer_.data() + written, buffer_.size() - written);
      if (count >= 0) {
        written += static_cast<std::size_t>(count);
      } else if (errno != EINTR) {
        give_up(written);
      }
    }
    buffer_.clear();
  }

  [[noreturn]] void give_up(std::size_t written) {
    const int error = errno;
    const std::size_t kept = shape_.whole(std::string_view(buffer_).substr(0, written));
    cut_torn_record(file_.get(), written - kept);
    dropped_ += shape_.count(std::string_view(buffer_).substr(kept));
    buffer_.clear();
    errno = error;
    throw_output_errno(path_, "cannot write to it");
  }

  FileDescriptor file_;
  std::string path_;
  RecordShape shape_;
  std::string buffer_;
  std::uint64_t dropped_ = 0;
};

}  // namespace

std::uint64_t RecordShape::count(std::string_view bytes) const {
  if (record_bytes > 0) return bytes.size() / record_bytes;
  return static_cast<std::uint64_t>(std::count(bytes.begin(), bytes.end(), '\n'));
}

std::size_t RecordShape::whole(std::string_view bytes) const {
  if (record_bytes > 0) return bytes.size() - bytes.size() % record_bytes;
  const std::size_t last = bytes.rfind('\n');
  return last == std::string_view::npos ? 0 : last + 1;
}

void cut_torn_record(int descriptor, std::size_t torn_bytes) {
  struct stat status {};
  if (torn_bytes == 0 || ::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) return;
  // Where even this fails the torn record is the last one, and the next writer or reader knows what to do with it.
  [[maybe_unused]] const int result = ::ftruncate(descriptor, status.st_size - static_cast<off_t>(torn_bytes));
}

RecordFile open_record_file(const std::string& path, ExistingFile existing, const RecordShape& shape) {
  RecordFile opened;
  if (path == kStandardOutput) {
    opened.file = FileDescriptor(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0));
    if (!opened.file.is_open()) throw_output_errno("standard output", "cannot use it");
    return opened;
  }
  // A file must be read for its torn end; a pipe that is opened for both would never fail when its reader has gone.
  struct stat status {};
  const bool is_pipe = ::stat(path.c_str(), &status) == 0 && S_ISFIFO(status.st_mode);
  opened.file =
      FileDescriptor(::open(path.c_str(), (is_pipe ? O_WRONLY : O_RDWR) | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!opened.file.is_open()) throw_output_errno(path, "cannot open it");
  if (::fstat(opened.file.get(), &status) != 0) throw_output_errno(path, "cannot look at it");
  if (!S_ISREG(status.st_mode) || status.st_size == 0) return opened;
  if (existing == ExistingFile::refuse) throw Error(path + ": it is there already");
  const auto size = static_cast<std::uint64_t>(status.st_size);
  const std::uint64_t kept = existing == ExistingFile::resume ? whole_size(opened.file, size, shape, path) : 0;
  if (kept != size && ::ftruncate(opened.file.get(), static_cast<off_t>(kept)) != 0)
    throw_output_errno(path, "cannot cut its end");
  opened.had_records = kept > 0;
  return opened;
}

std::unique_ptr<RecordSink> make_direct_sink(FileDescriptor file, std::string path, const RecordShape& shape) {
  return std::make_unique<DirectSink>(std::move(file), std::move(path), shape);
}

}  // namespace gnmr::io
