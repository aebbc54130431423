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
#include "gnmr/io/file_descriptor.h"
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

// A file that is unlinked again unless it is renamed to its place.
class TemporaryFile {
 public:
  TemporaryFile(const std::string& folder, const std::string& target) : target_(target) {
    static std::atomic<unsigned> counter{0};
    constexpr int kAttempts = 100;
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      const auto ticks = std::chrono::steady_clock::now().time_since_epoch().count();
      path_ = folder + "/.gnmr-" + std::to_string(::getpid()) + "-" + std::to_string(counter.fetch_add(1)) + "-" +
              std::to_string(ticks) + ".tmp";
      file_ = FileDescriptor(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
      if (file_.is_open()) return;
      if (errno != EEXIST) break;
    }
    path_.clear();
    throw_output_errno(target_, "cannot create a file beside it");
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    if (!path_.empty()) ::unlink(path_.c_str());
  }

  void take_mode(mode_t mode) {
    if (::fchmod(file_.get(), mode & 07777U) != 0) throw_output_errno(target_, "cannot keep its permissions");
  }

  void write(std::string_view content) {
    while (!content.empty()) {
      const ssize_t written = ::write(file_.get(), content.data(), content.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) throw_output_errno(target_, "cannot write it");
      content.remove_prefix(static_cast<std::size_t>(written));
    }
    if (::fsync(file_.get()) != 0) throw_output_errno(target_, "cannot force it to the disk");
    if (file_.close() != 0) throw_output_errno(target_, "cannot write it");
  }

  void rename_to_target() {
    if (::rename(path_.c_str(), target_.c_str()) != 0)
      throw_output_errno(target_, "cannot put the new file in its place");
    path_.clear();
  }

 private:
  std::string target_;
  std::string path_;
  FileDescriptor file_;
};

// The rename itself must survive a power cut. Some file systems do not know how, which is no reason to fail.
void force_folder_to_disk(const std::string& folder, const std::string& target) {
  const FileDescriptor handle(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!handle.is_open()) return;
  if (::fsync(handle.get()) != 0 && errno != EINVAL && errno != ENOTSUP && errno != EBADF) {
    throw_output_errno(target, "it is written, but its folder cannot be forced to the disk");
  }
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

void replace_file(const std::string& path, std::string_view content) {
  const std::string target = resolve_links(path);
  const std::string folder = folder_of(target);
  struct stat old_status {};
  const bool exists = ::stat(target.c_str(), &old_status) == 0;
  if (exists && !S_ISREG(old_status.st_mode)) throw OutputError(path + ": not a regular file, it is left alone");
  TemporaryFile temporary(folder, target);
  if (exists) temporary.take_mode(old_status.st_mode);
  temporary.write(content);
  temporary.rename_to_target();
  force_folder_to_disk(folder, target);
}

}  // namespace gnmr::io
