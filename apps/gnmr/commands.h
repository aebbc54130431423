// SPDX-License-Identifier: Apache-2.0
// The program and its subcommands, each in a file of its own.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace gnmr::app {

/// What a chosen subcommand does; the exit status is returned.
using Command = std::function<int()>;

/// Each adds its subcommand to the program and sets `chosen` when the user asks for it.
void add_replay_command(CLI::App& program, Command& chosen);
void add_options_command(CLI::App& program, Command& chosen);
void add_recipes_command(CLI::App& program, Command& chosen);
void add_train_command(CLI::App& program, Command& chosen);
void add_lab_command(CLI::App& program, Command& chosen);
void add_report_command(CLI::App& program, Command& chosen);
void add_explain_command(CLI::App& program, Command& chosen);
void add_tune_command(CLI::App& program, Command& chosen);
void add_plan_command(CLI::App& program, Command& chosen);

/// The whole program: reads the command line, runs, prints errors, gives the exit status.
int run_program(int argument_count, const char* const* arguments);

}  // namespace gnmr::app
