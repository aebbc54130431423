// SPDX-License-Identifier: Apache-2.0
// What was wrong with a command line, in our words: the culprit, what was expected, and the name that is near.
//
// Goals: CLI11's own sentences never reach a user. Non-goals: values (flag_values.h and the settings check these).
#pragma once

#include <string>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace gnmr::app {

/// The message about an error of `program.parse`, without a line end: `unknown command 'tran'; did you mean 'train'?`.
std::string usage_error_text(const CLI::App& program, const CLI::ParseError& error);

/// The command as far as it was understood: `gnmr lab stress`.
std::string command_path(const CLI::App& program);

}  // namespace gnmr::app
