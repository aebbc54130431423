// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>
#include <vector>

#include "gnmr/core/error.h"
#include "gnmr/io/file_descriptor.h"
#include "gnmr/io/text_error.h"

namespace gnmr::lab {
namespace {

io::FileDescriptor opened(const std::string& path, int flags) {
  io::FileDescriptor file(::open(path.c_str(), flags | O_CLOEXEC, 0666));
  if (!file.is_open()) io::throw_errno(path, "cannot open it");
  return file;
}

/// Between fork and exec only calls that are safe in a signal handler are allowed; errno goes through the pipe.
[[noreturn]] void become(char* const* arguments, pid_t parent, int input, int log, int failure) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(127);  // it died before the call above
  ::signal(SIGPIPE, SIG_DFL);
  if (::dup2(input, STDIN_FILENO) >= 0 && ::dup2(log, STDOUT_FILENO) >= 0 && ::dup2(log, STDERR_FILENO) >= 0) {
    ::execv(arguments[0], arguments);
  }
  const int error = errno;
  [[maybe_unused]] const ssize_t written = ::write(failure, &error, sizeof error);
  ::_exit(127);
}

}  // namespace

std::string ChildEnd::text() const {
  if (signal == 0) return "exit status " + std::to_string(status);
  const char* const name = ::strsignal(signal);
  return "killed by signal " + std::to_string(signal) + (name != nullptr ? " (" + std::string(name) + ")" : "");
}

ChildProcess::ChildProcess(std::span<const std::string> arguments, const std::string& log_path) {
  if (arguments.empty()) throw Error("[child] expected a program to start");
  std::vector<char*> pointers;
  for (const std::string& argument : arguments) pointers.push_back(const_cast<char*>(argument.c_str()));
  pointers.push_back(nullptr);
  const io::FileDescriptor input = opened("/dev/null", O_RDONLY);
  const io::FileDescriptor log = opened(log_path, O_WRONLY | O_CREAT | O_APPEND);
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) io::throw_errno(arguments.front(), "cannot start it");
  const io::FileDescriptor failure(ends[0]);
  io::FileDescriptor failure_writer(ends[1]);
  const pid_t parent = ::getpid();
  id_ = ::fork();
  if (id_ < 0) io::throw_errno(arguments.front(), "cannot start it");
  if (id_ == 0) become(pointers.data(), parent, input.get(), log.get(), failure_writer.get());
  ::setpgid(id_, id_);  // also here: whoever comes first
  failure_writer.close();
  int error = 0;
  ssize_t got = 0;
  do {
    got = ::read(failure.get(), &error, sizeof error);
  } while (got < 0 && errno == EINTR);
  if (got != static_cast<ssize_t>(sizeof error)) return;
  ::waitpid(std::exchange(id_, -1), nullptr, 0);
  errno = error;
  io::throw_errno(arguments.front(), "cannot start it");
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept : id_(std::exchange(other.id_, -1)), end_(other.end_) {}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  std::swap(id_, other.id_);
  std::swap(end_, other.end_);
  return *this;
}

ChildProcess::~ChildProcess() {
  if (id_ < 0) return;
  kill();
  while (::waitpid(id_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

std::optional<ChildEnd> ChildProcess::poll() {
  if (id_ < 0) return end_;
  int status = 0;
  const pid_t got = ::waitpid(id_, &status, WNOHANG);
  if (got != id_) return std::nullopt;
  id_ = -1;
  end_ = WIFSIGNALED(status) ? ChildEnd{.signal = WTERMSIG(status)} : ChildEnd{.status = WEXITSTATUS(status)};
  return end_;
}

void ChildProcess::interrupt() const {
  if (id_ >= 0) ::kill(id_, SIGINT);
}

void ChildProcess::kill() const {
  if (id_ < 0) return;
  // The group; the child alone where it has not made one yet.
  if (::kill(-id_, SIGKILL) != 0) ::kill(id_, SIGKILL);
}

}  // namespace gnmr::lab
