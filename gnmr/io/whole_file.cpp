// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/whole_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>

#include "gnmr/core/error.h"
#include "gnmr/io/checksum.h"
#include "gnmr/io/text_error.h"

namespace gnmr::io {
namespace {

struct stat status_of(const FileDescriptor& file, const std::string& path) {
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) throw_errno(path, "cannot look at it");
  return status;
}

// Up to `count` bytes. Grows with what comes, not with what was asked for.
std::string read_up_to(const FileDescriptor& file, const std::string& path, std::size_t count) {
  constexpr std::size_t kChunk = std::size_t{1} << 16;
  const struct stat status = status_of(file, path);
  std::string content;
  // One byte more, so that the read that finds the end needs no larger buffer.
  if (S_ISREG(status.st_mode)) content.reserve(std::min(count, static_cast<std::size_t>(status.st_size) + 1));
  while (content.size() < count) {
    const std::size_t before = content.size();
    const std::size_t room = content.capacity() - before;
    const std::size_t wanted = std::min(count - before, room > 0 ? room : kChunk);
    content.resize(before + wanted);
    const ssize_t got = ::read(file.get(), content.data() + before, wanted);
    content.resize(before + (got > 0 ? static_cast<std::size_t>(got) : 0));
    if (got == 0) break;
    if (got < 0 && errno != EINTR) throw_errno(path, "cannot read it");
  }
  return content;
}

// What a link points to is replaced, not the link.
std::string resolve_links(const std::string& path) {
  const std::unique_ptr<char, decltype(&::free)> resolved(::realpath(path.c_str(), nullptr), &::free);
  return resolved ? std::string(resolved.get()) : path;
}

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

std::string read_whole_file(const std::string& path, std::size_t largest) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_open()) throw_errno(path, "cannot open it");
  const std::size_t enough_to_know = largest == std::numeric_limits<std::size_t>::max() ? largest : largest + 1;
  std::string content = read_up_to(file, path, enough_to_know);
  if (content.size() > largest) throw error_at(path, "larger than " + std::to_string(largest) + " bytes");
  return content;
}

std::string read_file_start(const std::string& path, std::size_t count) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_open()) throw_errno(path, "cannot open it");
  return read_up_to(file, path, count);
}

StreamedFile::StreamedFile(const std::string& path) : target_(resolve_links(path)), folder_(folder_of(target_)) {
  struct stat old_status {};
  const bool exists = ::stat(target_.c_str(), &old_status) == 0;
  if (exists && !S_ISREG(old_status.st_mode)) throw OutputError(path + ": not a regular file, it is left alone");
  open_beside();
  if (exists && ::fchmod(file_.get(), old_status.st_mode & 07777U) != 0) {
    const int error = errno;
    ::unlink(temporary_.c_str());
    errno = error;
    throw_output_errno(target_, "cannot keep its permissions");
  }
}

void StreamedFile::open_beside() {
  static std::atomic<unsigned> counter{0};
  constexpr int kAttempts = 100;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const auto ticks = std::chrono::steady_clock::now().time_since_epoch().count();
    temporary_ = folder_ + "/.gnmr-" + std::to_string(::getpid()) + "-" + std::to_string(counter.fetch_add(1)) + "-" +
                 std::to_string(ticks) + ".tmp";
    file_ = FileDescriptor(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (file_.is_open()) return;
    if (errno != EEXIST) break;
  }
  throw_output_errno(target_, "cannot create a file beside it");
}

StreamedFile::~StreamedFile() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void StreamedFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    // What is summed is still in the cache when it is written.
    constexpr std::size_t kPiece = std::size_t{1} << 20;
    const ssize_t written = ::write(file_.get(), bytes.data(), std::min(bytes.size(), kPiece));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw_output_errno(target_, "cannot write it");
    crc32c_ = crc32c(bytes.substr(0, static_cast<std::size_t>(written)), crc32c_);
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

void StreamedFile::commit() {
  if (::fsync(file_.get()) != 0) throw_output_errno(target_, "cannot force it to the disk");
  if (file_.close() != 0) throw_output_errno(target_, "cannot write it");
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) {
    throw_output_errno(target_, "cannot put the new file in its place");
  }
  temporary_.clear();
  // The rename itself must survive a power cut. Some file systems do not know how, which is no reason to fail.
  const FileDescriptor handle(::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!handle.is_open()) return;
  if (::fsync(handle.get()) != 0 && errno != EINVAL && errno != ENOTSUP && errno != EBADF) {
    throw_output_errno(target_, "it is written, but its folder cannot be forced to the disk");
  }
}

void replace_file(const std::string& path, std::string_view content) {
  StreamedFile file(path);
  file.write(content);
  file.commit();
}

}  // namespace gnmr::io
