// SPDX-License-Identifier: Apache-2.0
// Values out of the JSON that a run writes, with messages that name the key.
//
// Goals: no key twice, no value of another type taken for granted; "inf", "-inf" and "nan" are numbers.
// Non-goals: writing (gnmr/io/json_text.h). Only for sources that have nlohmann/json.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace gnmr::run {

using Json = nlohmann::ordered_json;

/// Parses an object; an `Error` where the text is no JSON, no object, or has a key twice.
Json parse_object(std::string_view text);

/// The value at `key`; an `Error` where it is missing.
const Json& field(const Json& object, const char* key);

/// A number; the strings for what is not finite count.
double number_of(const Json& value, std::string_view key);

/// A whole number of 64 bits, which may be written as 5 or 5.0.
std::int64_t whole_of(const Json& value, std::string_view key);

/// A text.
std::string text_of(const Json& value, std::string_view key);

/// True or false.
bool truth_of(const Json& value, std::string_view key);

}  // namespace gnmr::run
