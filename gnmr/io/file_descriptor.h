// SPDX-License-Identifier: Apache-2.0
// An owned POSIX file descriptor.
//
// Goals: no leak on any path. Non-goals: reading, writing, buffering, errors.
#pragma once

#include <unistd.h>

#include <utility>

namespace gnmr::io {

/// Closes its descriptor when it goes; movable, not copyable.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int descriptor) : descriptor_(descriptor) {}
  FileDescriptor(FileDescriptor&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) {
      close();
      descriptor_ = std::exchange(other.descriptor_, -1);
    }
    return *this;
  }
  ~FileDescriptor() { close(); }

  /// The descriptor, or -1.
  int get() const { return descriptor_; }

  /// Whether there is one.
  bool is_open() const { return descriptor_ >= 0; }

  /// Closes it now; what close(2) returned, 0 where nothing was open.
  int close() { return is_open() ? ::close(std::exchange(descriptor_, -1)) : 0; }

 private:
  int descriptor_ = -1;
};

}  // namespace gnmr::io
