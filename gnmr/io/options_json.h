// SPDX-License-Identifier: Apache-2.0
// Options as a JSON object, and as the table of docs/options.md.
//
// Everything follows from gnmr::option_specs(); an option that is added there is read, written and documented here.
//
// Goals: an error names the option that is wrong; what is written reads back as equal options.
// Non-goals: command-line flags (apps do that), comments or any other extension of JSON.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gnmr/core/options.h"

namespace gnmr::io {

/// Options from a JSON object of option names and `preset`; an `Error` names what is unknown, repeated or wrong. A
/// `preset` that is not empty takes the place of the object's. `named`: the options that the object names besides.
Options read_options(std::string_view json_text, std::string_view preset = {},
                     std::vector<std::string>* named = nullptr);

/// Options from a file that holds such an object; the `Error` begins with the path.
Options read_options_file(const std::string& path, std::string_view preset = {},
                          std::vector<std::string>* named = nullptr);

/// Every option as one line of JSON, without a line end.
std::string write_options(const Options& options);

/// The flag of an option on the command line: `lock_steps` is `--lock-steps`.
std::string option_flag(std::string_view name);

/// A value of an option as text: a word, or the shortest number that reads back as the same.
std::string option_text(const OptionSpec& spec, double value);

/// An item of a list in Markdown, wrapped to the width of the docs.
std::string markdown_item(std::string_view text);

/// All options as a list in Markdown: name, default, `paper`, range, meaning.
std::string options_markdown();

}  // namespace gnmr::io
