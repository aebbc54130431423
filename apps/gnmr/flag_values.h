// SPDX-License-Identifier: Apache-2.0
// Flags whose values are numbers, read alike by every subcommand.
//
// Goals: `1e3` is a whole number; a message names the flag, what it needs and what came. Non-goals: texts (CLI11 takes
// them as they are), settings with ranges of their own (their owners check these).
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace gnmr::app {

/// The whole numbers that a flag takes.
struct WholeRange {
  std::int64_t low = std::numeric_limits<std::int64_t>::min();
  std::int64_t high = std::numeric_limits<std::int64_t>::max();
};

/// `text` as a whole number, which may be written as 1000, 1e3 or 1000.0. A `CommandError` names the flag.
std::int64_t whole_value(const std::string& flag, const std::string& text, WholeRange range = {});

/// `text` as a number. A `CommandError` names the flag.
double number_value(const std::string& flag, const std::string& text);

/// The same, finite and not below 0.
double amount_value(const std::string& flag, const std::string& text);

/// Adds a flag with a whole number, which `take` gets.
CLI::Option* add_whole(CLI::App& command, const std::string& flag, std::function<void(std::int64_t)> take,
                       const std::string& help, WholeRange range = {});

/// Adds a flag with one or more whole numbers.
CLI::Option* add_wholes(CLI::App& command, const std::string& flag, std::vector<std::int64_t>& values,
                        const std::string& help);

/// Adds a flag with a number that is finite and not below 0.
CLI::Option* add_amount(CLI::App& command, const std::string& flag, double& value, const std::string& help);

/// Adds a flag with one or more texts.
CLI::Option* add_texts(CLI::App& command, const std::string& flag, std::vector<std::string>& values,
                       const std::string& help);

}  // namespace gnmr::app
