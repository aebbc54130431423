// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <exception>
#include <memory>
#include <sstream>
#include <string>

#include "gnmr/commands.h"
#include "gnmr/exit_codes.h"
#include "gnmr/keep_memory.h"
#include "gnmr/messages.h"
#include "gnmr/usage_errors.h"

namespace gnmr::app {
namespace {

/// An error as a terminal can show it: what it quotes from a file may be long and hold any bytes.
std::string shown(std::string what) {
  constexpr std::size_t kLongest = 2000;
  constexpr std::size_t kEnd = 400;  // what was expected stands there
  if (what.size() > kLongest) what.replace(kLongest - kEnd, what.size() - kLongest, " ... ");
  for (char& character : what) {
    if (character != '\n') character = printable({&character, 1}).front();
  }
  return what;
}

int report(int code, const std::string& what) {
  say(shown(what));
  return code;
}

/// What was printed must have arrived.
int checked_output(int code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  return code == kOk ? report(kOutputError, "standard output could not be written") : code;
}

/// Help as CLI11 lays it out, with long descriptions broken into lines.
class WrappedHelp : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    // What can be given by its place or by its name is listed twice, but only one of these is needed.
    if (is_positional || !option->get_positional()) return CLI::Formatter::make_option(option, is_positional);
    std::ostringstream out;
    CLI::detail::format_help(out, make_option_name(option, false) + " " + option->get_type_name(),
                             "The same by name: one of the two is enough", column_width_);
    return out.str();
  }

  std::string make_option_desc(const CLI::Option* option) const override {
    const std::string text = CLI::Formatter::make_option_desc(option);
    std::string wrapped;
    std::size_t line = 0;
    std::istringstream words(text);
    for (std::string word; words >> word;) {
      if (line > 0 && line + 1 + word.size() > kDescriptionColumns) {
        wrapped += '\n';  // CLI11 indents what follows
        line = 0;
      }
      if (line > 0) wrapped += ' ';
      wrapped += word;
      line += word.size() + (line > 0 ? 1 : 0);
    }
    return wrapped;
  }

 private:
  static constexpr std::size_t kDescriptionColumns = 76;
};

}  // namespace

int run_program(int argument_count, const char* const* arguments) {
  // A reader that has gone away (`gnmr replay ... | head`) is a write error, not a signal.
  std::signal(SIGPIPE, SIG_IGN);
  keep_memory();
  CLI::App program{
      "gnmr keeps low-precision training stable: it watches every unit's gradient norm and the errors\n"
      "of its low-precision GEMMs, and runs the units at fault in high precision for a few steps.",
      "gnmr"};
  program.set_version_flag("--version", "gnmr " GNMR_VERSION, "Print the version and exit");
  program.set_help_flag("-h,--help", "Print this help and exit");
  program.require_subcommand(1);
  program.footer(std::string("`gnmr COMMAND --help` explains a command.\n\n") + kExitCodesHelp);
  const auto help = std::make_shared<WrappedHelp>();
  help->column_width(34);
  program.formatter(help);
  Command chosen;
  add_train_command(program, chosen);
  add_lab_command(program, chosen);
  add_replay_command(program, chosen);
  add_tune_command(program, chosen);
  add_plan_command(program, chosen);
  add_recipes_command(program, chosen);
  add_options_command(program, chosen);
  add_report_command(program, chosen);
  add_explain_command(program, chosen);
  try {
    program.parse(argument_count, arguments);
    return checked_output(chosen());
  } catch (const CLI::ParseError& error) {
    const bool asked = error.get_exit_code() == 0;  // --help, --version
    if (asked) {
      program.exit(error);
      return checked_output(kOk);
    }
    return report(kUsageError, usage_error_text(program, error) + "\n`" + command_path(program) + " --help` explains.");
  } catch (const CommandError& error) {
    return report(error.code(), error.what());
  } catch (const OutputError& error) {
    return report(kOutputError, error.what());
  } catch (const Error& error) {
    return report(kInputError, error.what());
  } catch (const std::exception& error) {
    return report(kInternalError, std::string("unexpected: ") + error.what());
  }
}

}  // namespace gnmr::app
