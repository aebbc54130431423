// SPDX-License-Identifier: Apache-2.0
// A program that runs beside this one, in a process group of its own.
//
// Its output goes to a log file, its input is empty. A Ctrl-C on the terminal does not reach it: whoever started it
// asks it to stop. It is asked to stop (SIGTERM) when this process dies, however that happens.
//
// Goals: no zombie, no orphan, no descriptor left behind. Non-goals: talking to it. One thread; the one that starts a
// child must live as long as it.
#pragma once

#include <sys/types.h>

#include <optional>
#include <span>
#include <string>

namespace gnmr::lab {

/// How a child ended.
struct ChildEnd {
  int status = 0;  // exit status, where it was not killed
  int signal = 0;  // what killed it; 0: it ended by itself

  bool good() const { return status == 0 && signal == 0; }

  /// `exit status 3`, `killed by signal 9 (Killed)`.
  std::string text() const;
};

/// A child; one that still runs when the object goes is killed.
class ChildProcess {
 public:
  /// Starts `arguments`, the first of which is the program's path. What it prints is added to the file at `log_path`.
  /// An `Error` where it cannot be started.
  ChildProcess(std::span<const std::string> arguments, const std::string& log_path);
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();

  /// How it ended; none while it runs. Does not wait.
  std::optional<ChildEnd> poll();

  /// Asks it to stop (SIGINT), if it still runs. What it has started is its own to stop.
  void interrupt() const;

  /// Kills it and what it has started, if it still runs.
  void kill() const;

  pid_t id() const { return id_; }

 private:
  pid_t id_ = -1;  // -1: nothing runs
  std::optional<ChildEnd> end_;
};

}  // namespace gnmr::lab
