// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <exception>

#include "gnmr/commands.h"
#include "gnmr/exit_codes.h"

namespace gnmr::app {
namespace {

int report(int code, const std::string& what) {
  fmt::print(stderr, "gnmr: {}\n", what);
  return code;
}

}  // namespace

int run_program(int argument_count, const char* const* arguments) {
  // A reader that has gone away (`gnmr replay ... | head`) is a write error, not a signal.
  std::signal(SIGPIPE, SIG_IGN);
  CLI::App program{
      "gnmr keeps low-precision training stable: it watches every unit's gradient norm and says which units\n"
      "should run in high precision for a few steps.",
      "gnmr"};
  program.set_version_flag("--version", "gnmr " GNMR_VERSION, "Print the version and exit");
  program.set_help_flag("-h,--help", "Print this help and exit");
  program.require_subcommand(1);
  program.footer(std::string("`gnmr COMMAND --help` explains a command.\n\n") + kExitCodesHelp);
  program.get_formatter()->column_width(34);
  Command chosen;
  add_replay_command(program, chosen);
  add_options_command(program, chosen);
  try {
    program.parse(argument_count, arguments);
    return chosen();
  } catch (const CLI::ParseError& error) {
    const bool asked = error.get_exit_code() == 0;  // --help, --version
    program.exit(error);
    return asked ? kOk : kUsageError;
  } catch (const CommandError& error) {
    return report(error.code(), error.what());
  } catch (const Error& error) {
    return report(kInputError, error.what());
  } catch (const std::exception& error) {
    return report(kInternalError, std::string("unexpected: ") + error.what());
  }
}

}  // namespace gnmr::app
