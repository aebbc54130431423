// SPDX-License-Identifier: Apache-2.0
#include "gnmr/flag_values.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <utility>

#include "gnmr/exit_codes.h"
#include "gnmr/io/number_text.h"
#include "gnmr/messages.h"

namespace gnmr::app {
namespace {

[[noreturn]] void refuse(const std::string& flag, std::string_view needed, const std::string& text) {
  throw CommandError(kUsageError, fmt::format("{} needs {}, got '{}'", flag, needed, printable(text)));
}

std::string description(WholeRange range) {
  const WholeRange any;
  if (range.high != any.high) return fmt::format("a whole number from {} to {}", range.low, range.high);
  if (range.low != any.low) return fmt::format("a whole number from {} on", range.low);
  return "a whole number";
}

}  // namespace

std::int64_t whole_value(const std::string& flag, const std::string& text, WholeRange range) {
  std::int64_t value = 0;
  double number = 0;
  if (!io::parse_number(text, number)) refuse(flag, "a number", text);
  if (!io::parse_whole_value(text, value) || value < range.low || value > range.high) {
    refuse(flag, description(range), text);
  }
  return value;
}

double number_value(const std::string& flag, const std::string& text) {
  double value = 0;
  if (!io::parse_number(text, value)) refuse(flag, "a number", text);
  return value;
}

double amount_value(const std::string& flag, const std::string& text) {
  const double value = number_value(flag, text);
  if (!std::isfinite(value) || value < 0) refuse(flag, "a number that is 0 or more", text);
  return value;
}

CLI::Option* add_whole(CLI::App& command, const std::string& flag, std::function<void(std::int64_t)> take,
                       const std::string& help, WholeRange range) {
  const auto set = [flag, take = std::move(take), range](const std::string& text) {
    take(whole_value(flag, text, range));
  };
  return command.add_option_function<std::string>(flag, set, help)->type_name("N");
}

CLI::Option* add_wholes(CLI::App& command, const std::string& flag, std::vector<std::int64_t>& values,
                        const std::string& help) {
  const auto set = [flag, &values](const std::vector<std::string>& texts) {
    values.clear();
    for (const std::string& text : texts) values.push_back(whole_value(flag, text));
  };
  return command.add_option_function<std::vector<std::string>>(flag, set, help)
      ->type_name("N")
      ->expected(1, CLI::detail::expected_max_vector_size);
}

CLI::Option* add_amount(CLI::App& command, const std::string& flag, double& value, const std::string& help) {
  const auto set = [flag, &value](const std::string& text) { value = amount_value(flag, text); };
  return command.add_option_function<std::string>(flag, set, help)->type_name("X");
}

CLI::Option* add_texts(CLI::App& command, const std::string& flag, std::vector<std::string>& values,
                       const std::string& help) {
  // What follows a list must begin with `--`.
  return command.add_option(flag, values, help)->expected(1, CLI::detail::expected_max_vector_size);
}

}  // namespace gnmr::app
