// SPDX-License-Identifier: Apache-2.0
// `gnmr options`: the options with their ranges, and how a set of flags comes out.

#include <CLI/CLI.hpp>
#include <memory>

#include "gnmr/commands.h"
#include "gnmr/exit_codes.h"
#include "gnmr/io/options_json.h"
#include "gnmr/messages.h"
#include "gnmr/option_flags.h"

namespace gnmr::app {

void add_options_command(CLI::App& program, Command& chosen) {
  CLI::App* const command = program.add_subcommand(
      "options", "Print the controller's options as JSON (to keep as a file for --config), or explain them");
  const auto flags = std::make_shared<OptionFlags>();
  const auto markdown = std::make_shared<bool>(false);
  command->add_flag("--markdown", *markdown, "Print the table of docs/options.md instead");
  flags->add_to(*command);
  command->footer(kExitCodesHelp);
  command->callback([&chosen, flags, markdown] {
    chosen = [flags, markdown] {
      put(stdout, (*markdown ? io::options_markdown() : io::write_options(flags->options())) + "\n");
      return static_cast<int>(kOk);
    };
  });
}

}  // namespace gnmr::app
