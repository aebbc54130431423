// SPDX-License-Identifier: Apache-2.0
#include "gnmr/usage_errors.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "gnmr/core/message_text.h"
#include "gnmr/messages.h"

namespace gnmr::app {
namespace {

/// The program and the commands that were typed, as deep as they were understood.
std::vector<const CLI::App*> chosen_commands(const CLI::App& program) {
  std::vector<const CLI::App*> chain{&program};
  for (auto chosen = program.get_subcommands(); !chosen.empty(); chosen = chosen.front()->get_subcommands()) {
    chain.push_back(chosen.front());
  }
  return chain;
}

std::vector<std::string> command_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::App* const one : command.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(one->get_name());
  }
  return names;
}

std::vector<std::string> long_flags(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* const option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back(name);
  }
  return names;
}

bool is_flag(std::string_view argument) { return argument.size() > 1 && argument.front() == '-'; }

/// `--steps=3` is about `steps`.
std::string flag_name(std::string_view argument) {
  argument = argument.substr(0, argument.find('='));
  return std::string(argument.substr(std::min(argument.find_first_not_of('-'), argument.size())));
}

std::string unknown_flag(const std::string& argument, const CLI::App& command, const CLI::App& deepest) {
  const std::string shown = printable(argument.substr(0, argument.find('=')));
  const std::string name = flag_name(argument);
  if (&command != &deepest && deepest.get_option_no_throw("--" + name) != nullptr) {
    return fmt::format("'{}' comes after the command: {} {}", shown, command_path(command), shown);
  }
  const std::vector<std::string> flags = long_flags(command);
  const std::vector<std::string_view> views(flags.begin(), flags.end());
  const std::string_view near = near_match(name, views);
  return fmt::format("unknown flag '{}'{}", shown, near.empty() ? "" : fmt::format("; did you mean '--{}'?", near));
}

/// About the first argument that nobody took; nothing where all were taken.
std::optional<std::string> unknown_argument(const CLI::App& program) {
  const std::vector<const CLI::App*> chain = chosen_commands(program);
  for (const CLI::App* const command : chain) {
    const std::vector<std::string> left = command->remaining();
    if (left.empty()) continue;
    const std::string& first = left.front();
    if (is_flag(first)) return unknown_flag(first, *command, *chain.back());
    const std::vector<std::string> names = command_names(*command);
    if (names.empty() || command != chain.back()) return fmt::format("unexpected argument '{}'", printable(first));
    return fmt::format("unknown command '{}'{}", printable(first), did_you_mean(first, names));
  }
  return std::nullopt;
}

/// What a flag takes, by the word that stands for its value in the help.
std::string needed_value(const std::string& type) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kWords{{{"N", "a number"},
                                                                                 {"X", "a number"},
                                                                                 {"S", "a number"},
                                                                                 {"SHARE", "a number"},
                                                                                 {"STEP", "a number"},
                                                                                 {"FILE", "a file"},
                                                                                 {"DIR", "a folder"},
                                                                                 {"NAME", "a name"},
                                                                                 {"GLOB", "a glob"}}};
  for (const auto& [word, needed] : kWords) {
    if (type == word) return std::string(needed);
  }
  return "a value: " + type;
}

/// The option that a message of CLI11 begins with, if any.
const CLI::Option* named_option(const CLI::App& command, std::string_view message) {
  return command.get_option_no_throw(std::string(message.substr(0, message.find(':'))));
}

std::string missing_text(const CLI::App& program, const CLI::App& command) {
  if (command.get_require_subcommand_min() > 0 && command.get_subcommands().empty()) {
    return fmt::format("`{}` needs a command: {}", command_path(program), fmt::join(command_names(command), ", "));
  }
  for (const CLI::Option* const option : command.get_options()) {
    if (!option->get_required() || option->count() > 0) continue;
    const std::string type = option->get_type_name();
    if (!option->get_positional()) {
      return fmt::format("{} is missing: {} {} {}", option->get_name(), command_path(program), option->get_name(),
                         type);
    }
    const bool either = !option->get_lnames().empty();
    return fmt::format("{} is missing: {} {}{}", type, command_path(program), type,
                       either ? fmt::format(" (or --{} {})", option->get_lnames().front(), type) : "");
  }
  return "an argument is missing";
}

}  // namespace

std::string command_path(const CLI::App& program) {
  std::string path;
  for (const CLI::App* const command : chosen_commands(program)) {
    path += (path.empty() ? "" : " ") + command->get_name();
  }
  return path;
}

std::string usage_error_text(const CLI::App& program, const CLI::ParseError& error) {
  if (const auto unknown = unknown_argument(program)) return *unknown;
  const CLI::App& command = *chosen_commands(program).back();
  const std::string message = error.what();
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) return missing_text(program, command);
  if (dynamic_cast<const CLI::ExcludesError*>(&error) != nullptr) {
    const std::size_t between = message.find(" excludes ");
    return message.substr(0, between) + " and " + message.substr(between + 10) + " cannot be used together";
  }
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    const CLI::Option* const option = named_option(command, message);
    if (option == nullptr) return message;
    if (message.find("At Most") != std::string::npos) return option->get_name() + " is given more than once";
    return option->get_name() + " needs " + needed_value(option->get_type_name());
  }
  // All values are taken as texts, so only a switch can refuse one here.
  constexpr std::string_view kConversion = "Could not convert: ";
  if (message.starts_with(kConversion)) {
    const std::size_t equals = message.find(" = ");
    return message.substr(kConversion.size(), equals - kConversion.size()) + " takes no value";
  }
  return message;
}

}  // namespace gnmr::app
