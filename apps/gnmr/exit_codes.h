// SPDX-License-Identifier: Apache-2.0
// What the program's exit status means; the same for every subcommand.
#pragma once

#include <string>

#include "gnmr/core/error.h"

namespace gnmr::app {

enum ExitCode : int {
  kOk = 0,
  kInternalError = 1,
  kUsageError = 2,
  kInputError = 3,
  kOutputError = 4,
  kStopped = 5,
};

/// The lines that `--help` ends with.
inline constexpr const char* kExitCodesHelp =
    "Exit status: 0 done; 1 a bug in gnmr; 2 wrong flags or option values; 3 input that cannot be used\n"
    "(file, line and column are named); 4 output that could not be written (disk full, no permission, the\n"
    "last checkpoint); 5 stopped by SIGINT, SIGTERM or SIGHUP, and --resume continues.";

/// An error that ends the program with this status.
class CommandError : public Error {
 public:
  CommandError(ExitCode code, const std::string& what) : Error(what), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

/// Runs `body`; an `Error` in it ends the program with `code`.
template <class Body>
auto with_exit_code(ExitCode code, Body&& body) {
  try {
    return body();
  } catch (const CommandError&) {
    throw;
  } catch (const OutputError& error) {
    throw CommandError(kOutputError, error.what());
  } catch (const Error& error) {
    throw CommandError(code, error.what());
  }
}

}  // namespace gnmr::app
