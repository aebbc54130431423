// SPDX-License-Identifier: Apache-2.0
// A command that runs in a folder of its own, with bounds on its memory and time.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "gnmr/lab/child_process.h"

namespace gnmr::abuse {

using Words = std::vector<std::string>;

/// What a command may use; more is a failure.
struct Limits {
  std::size_t memory_mib = 0;  // of address space; 0: no limit
  int cpu_seconds = 60;
  std::chrono::seconds wall{120};
};

/// A command that runs; its output goes to `out` and `err` beside its folder: FOLDER.out, FOLDER.err.
class RunningCommand {
 public:
  /// `variables` are NAME=VALUE. Paths in `words` are relative to `folder`, but for the program's own.
  RunningCommand(const std::string& folder, const Words& words, const Limits& limits, const Words& variables = {});

  /// Whether it still runs; past the limit of time it is killed.
  bool running();

  /// Sends a signal to the program alone.
  void send(int signal) const;

  /// Waits for the end.
  lab::ChildEnd wait();

  bool timed_out() const { return timed_out_; }
  double seconds() const;
  std::string err() const;
  std::string out() const;

 private:
  std::string folder_;
  Limits limits_;
  std::chrono::steady_clock::time_point begin_;
  lab::ChildProcess child_;
  std::optional<lab::ChildEnd> end_;
  bool timed_out_ = false;
};

/// A command as a line for a shell.
std::string shell_line(const Words& words);

/// Copies a folder with all that is in it. Not std::filesystem's: see tests/io/temporary_folder.h.
void copy_tree(const std::string& from, const std::string& to);

}  // namespace gnmr::abuse
