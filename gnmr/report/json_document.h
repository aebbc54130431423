// SPDX-License-Identifier: Apache-2.0
// Values out of JSON documents, with messages that name the file and the key.
//
// Goals: what is absent or null is absent; what has the wrong type is an `Error`; "inf", "-inf" and "nan" are numbers.
// Non-goals: writing JSON.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace gnmr::report {

/// A JSON value and where it stands, for messages: `FILE` or `FILE: line N`.
struct JsonPlace {
  const nlohmann::json& value;
  std::string where;
};

/// Parses `text`, which must be an object; an `Error` that begins with `where` otherwise.
nlohmann::json parse_object(std::string_view text, const std::string& where);

/// Reads a file that holds one object of version 1.
nlohmann::json read_versioned_object(const std::string& path);

/// The number at `key`, if there is one.
std::optional<double> number_at(const JsonPlace& place, const char* key);

/// The whole number at `key`, if there is one.
std::optional<std::int64_t> whole_at(const JsonPlace& place, const char* key);

/// The truth value at `key`, if there is one.
std::optional<bool> truth_at(const JsonPlace& place, const char* key);

/// The text at `key`; empty where there is none.
std::string text_at(const JsonPlace& place, const char* key);

/// The array at `key`; null where there is none.
const nlohmann::json* array_at(const JsonPlace& place, const char* key);

/// A scalar as text for people; nothing for objects, arrays and null.
std::optional<std::string> scalar_text(const nlohmann::json& value);

}  // namespace gnmr::report
