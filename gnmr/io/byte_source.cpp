// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/byte_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>
#include <utility>
#include <vector>

#include "gnmr/core/error.h"
#include "gnmr/io/file_descriptor.h"
#include "gnmr/io/gzip_source.h"

namespace gnmr::io {
namespace {

std::string system_text(int error_number) { return std::generic_category().message(error_number); }

class FileSource final : public ByteSource {
 public:
  FileSource(std::string name, FileDescriptor descriptor) : FileSource(std::move(name), descriptor.get()) {
    owned_ = std::move(descriptor);
  }

  FileSource(std::string name, int descriptor) : ByteSource(std::move(name)), descriptor_(descriptor) {
    struct stat status = {};
    if (::fstat(descriptor_, &status) != 0) fail(errno);
    if (S_ISDIR(status.st_mode)) throw Error(this->name() + ": is a directory");
    if (!S_ISREG(status.st_mode)) return;
    const off_t start = ::lseek(descriptor_, 0, SEEK_CUR);
    if (start < 0) return;
    start_ = start;
    regular_ = true;
    total_ = static_cast<std::uint64_t>(std::max<off_t>(status.st_size - start, 0));
  }

  std::size_t read(std::span<char> into) override {
    for (;;) {
      const ssize_t count = ::read(descriptor_, into.data(), into.size());
      if (count >= 0) {
        read_ += static_cast<std::uint64_t>(count);
        return static_cast<std::size_t>(count);
      }
      if (errno != EINTR) fail(errno);
    }
  }

  // Standard input is never rewound, a file behind it or not: the same command then means the same with a pipe.
  bool can_rewind() const override { return regular_ && owned_.is_open(); }

  void rewind() override {
    if (!can_rewind()) throw Error(name() + ": cannot be read twice");
    if (::lseek(descriptor_, start_, SEEK_SET) < 0) fail(errno);
    read_ = 0;
  }

  std::uint64_t bytes_read() const override { return read_; }
  std::uint64_t bytes_total() const override { return total_; }

 private:
  [[noreturn]] void fail(int error_number) const {
    throw Error(name() + ": cannot be read: " + system_text(error_number));
  }

  FileDescriptor owned_;
  int descriptor_ = -1;
  off_t start_ = 0;
  bool regular_ = false;
  std::uint64_t read_ = 0;
  std::uint64_t total_ = 0;
};

class MemorySource final : public ByteSource {
 public:
  MemorySource(std::string name, std::string bytes) : ByteSource(std::move(name)), bytes_(std::move(bytes)) {}

  std::size_t read(std::span<char> into) override {
    const std::size_t count = std::min(into.size(), bytes_.size() - at_);
    if (count > 0) std::memcpy(into.data(), bytes_.data() + at_, count);
    at_ += count;
    return count;
  }

  bool can_rewind() const override { return true; }
  void rewind() override { at_ = 0; }
  std::uint64_t bytes_read() const override { return at_; }
  std::uint64_t bytes_total() const override { return bytes_.size(); }

 private:
  std::string bytes_;
  std::size_t at_ = 0;
};

std::unique_ptr<ByteSource> decompressed(std::unique_ptr<ByteSource> raw) {
  auto source = std::make_unique<PeekableSource>(std::move(raw));
  while (source->peeked().size() < kGzipMagic.size() && source->peek_more(kGzipMagic.size())) {
  }
  if (!source->peeked().starts_with(kGzipMagic)) return source;
  return make_gzip_source(std::move(source));
}

void write_all(int descriptor, const char* data, std::size_t size) {
  while (size > 0) {
    const ssize_t count = ::write(descriptor, data, size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw Error("a temporary file cannot be written: " + system_text(errno));
    data += count;
    size -= static_cast<std::size_t>(count);
  }
}

}  // namespace

PeekableSource::PeekableSource(std::unique_ptr<ByteSource> inner)
    : ByteSource(inner->name()), inner_(std::move(inner)) {}

bool PeekableSource::peek_more(std::size_t count) {
  const std::size_t before = head_.size();
  head_.resize(before + count);
  const std::size_t got = inner_->read(std::span(head_).subspan(before));
  head_.resize(before + got);
  return got > 0;
}

std::size_t PeekableSource::read(std::span<char> into) {
  const std::string_view waiting = peeked();
  if (waiting.empty()) return inner_->read(into);
  const std::size_t count = std::min(into.size(), waiting.size());
  std::memcpy(into.data(), waiting.data(), count);
  head_at_ += count;
  if (head_at_ == head_.size()) {
    head_ = std::string();
    head_at_ = 0;
  }
  return count;
}

void PeekableSource::rewind() {
  inner_->rewind();
  head_.clear();
  head_at_ = 0;
}

std::unique_ptr<ByteSource> open_byte_source(const std::string& path) {
  if (path == kStandardInput) return decompressed(std::make_unique<FileSource>("standard input", STDIN_FILENO));
  FileDescriptor descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!descriptor.is_open()) throw Error(path + ": cannot be opened: " + system_text(errno));
  return decompressed(std::make_unique<FileSource>(path, std::move(descriptor)));
}

std::unique_ptr<ByteSource> memory_byte_source(std::string name, std::string bytes) {
  return decompressed(std::make_unique<MemorySource>(std::move(name), std::move(bytes)));
}

std::unique_ptr<ByteSource> make_rewindable(std::unique_ptr<ByteSource> source) {
  if (source->can_rewind()) return source;
  // std::tmpfile gives a file without a name, so nothing is left behind however the program ends.
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::tmpfile(), &std::fclose);
  if (!file) throw Error("a temporary file cannot be made: " + system_text(errno));
  FileDescriptor copy(::dup(::fileno(file.get())));
  if (!copy.is_open()) throw Error("a temporary file cannot be made: " + system_text(errno));
  std::vector<char> buffer(std::size_t{1} << 18);
  for (std::size_t count = source->read(buffer); count > 0; count = source->read(buffer)) {
    write_all(copy.get(), buffer.data(), count);
  }
  if (::lseek(copy.get(), 0, SEEK_SET) < 0) throw Error("a temporary file cannot be read: " + system_text(errno));
  return std::make_unique<FileSource>(source->name(), std::move(copy));
}

}  // namespace gnmr::io
