// SPDX-License-Identifier: Apache-2.0
#include "gnmr/run/json_fields.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "gnmr/core/error.h"
#include "gnmr/io/json_text.h"
#include "gnmr/io/json_unique.h"

namespace gnmr::run {
namespace {

constexpr double kTwoTo53 = 9007199254740992.0;  // whole numbers below it are exact in a double

[[noreturn]] void refuse_value(std::string_view key, std::string_view expected, const Json& got) {
  throw Error(fmt::format("`{}`: expected {}, got {}", key, expected, got.type_name()));
}

}  // namespace

Json parse_object(std::string_view text) {
  io::refuse_deep_json(text);
  Json document;
  try {
    document = io::parse_unique<Json>(
        text, [](const std::string& key) { throw Error(fmt::format("{} is there twice", io::in_quotes(key))); });
  } catch (const Json::exception& error) {
    throw Error(io::json_error_text(error.what(), text));
  }
  if (!document.is_object()) throw Error(fmt::format("expected a JSON object, got {}", document.type_name()));
  return document;
}

const Json& field(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) throw Error(fmt::format("`{}` is missing", key));
  return *found;
}

double number_of(const Json& value, std::string_view key) {
  if (value.is_number()) return value.get<double>();
  if (value == "inf") return std::numeric_limits<double>::infinity();
  if (value == "-inf") return -std::numeric_limits<double>::infinity();
  if (value == "nan") return std::numeric_limits<double>::quiet_NaN();
  refuse_value(key, "a number", value);
}

std::int64_t whole_of(const Json& value, std::string_view key) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<std::uint64_t>();
    if (number <= std::uint64_t{std::numeric_limits<std::int64_t>::max()}) return static_cast<std::int64_t>(number);
  } else if (value.is_number_integer()) {
    return value.get<std::int64_t>();
  } else if (value.is_number_float()) {
    const double number = value.get<double>();
    if (std::trunc(number) == number && std::abs(number) < kTwoTo53) return static_cast<std::int64_t>(number);
    throw Error(fmt::format("`{}`: expected a whole number, got {}", key, number));
  }
  refuse_value(key, "a whole number of 64 bits", value);
}

std::string text_of(const Json& value, std::string_view key) {
  if (!value.is_string()) refuse_value(key, "a string", value);
  return value.get<std::string>();
}

bool truth_of(const Json& value, std::string_view key) {
  if (!value.is_boolean()) refuse_value(key, "true or false", value);
  return value.get<bool>();
}

}  // namespace gnmr::run
