// SPDX-License-Identifier: Apache-2.0
// A stand-in for a full disk that needs no privileges: the process's own limit on the size of files.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

namespace gnmr::test {

/// While it lives, no file can grow beyond `bytes`: write(2) writes what fits, then fails.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    old_handler_ = ::signal(SIGXFSZ, SIG_IGN);
    if (::getrlimit(RLIMIT_FSIZE, &old_limit_) != 0) ADD_FAILURE() << "getrlimit";
    set(bytes);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;
  ~FileSizeLimit() {
    set(old_limit_.rlim_cur);
    ::signal(SIGXFSZ, old_handler_);
  }

  /// Moves the limit.
  void set(rlim_t bytes) {
    const rlimit limit{bytes, old_limit_.rlim_max};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) ADD_FAILURE() << "setrlimit";
  }

 private:
  rlimit old_limit_{};
  void (*old_handler_)(int) = SIG_DFL;
};

}  // namespace gnmr::test
