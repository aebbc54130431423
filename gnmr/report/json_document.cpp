// SPDX-License-Identifier: Apache-2.0
#include "gnmr/report/json_document.h"

#include <cmath>

#include "gnmr/io/json_text.h"
#include "gnmr/io/number_text.h"
#include "gnmr/io/text_error.h"
#include "gnmr/io/whole_file.h"
#include "gnmr/report/number_format.h"

namespace gnmr::report {
namespace {

using nlohmann::json;

constexpr std::size_t kLargestDocument = std::size_t{64} << 20U;
constexpr double kLargestExact = 9007199254740992.0;  // 2^53

const json* find(const JsonPlace& place, const char* key) {
  const auto found = place.value.find(key);
  return found == place.value.end() || found->is_null() ? nullptr : &*found;
}

[[noreturn]] void wrong_type(const JsonPlace& place, const char* key, std::string_view expected) {
  const std::string got = place.value.at(key).dump(-1, ' ', false, json::error_handler_t::replace);
  throw io::error_at(place.where, std::string("\"") + key + "\" must be " + std::string(expected) + ", not " +
                                      io::in_quotes(got.substr(0, 60)));
}

}  // namespace

json parse_object(std::string_view text, const std::string& where) {
  json document;
  try {
    io::refuse_deep_json(text);
    document = json::parse(text);
  } catch (const Error& error) {
    throw io::error_at(where, error.what());
  } catch (const json::exception& error) {
    throw io::error_at(where, io::json_error_text(error.what(), text));
  }
  if (!document.is_object()) throw io::error_at(where, "must be a JSON object");
  return document;
}

json read_versioned_object(const std::string& path) {
  json document = parse_object(io::read_whole_file(path, kLargestDocument), path);
  const std::int64_t version = whole_at({document, path}, "version").value_or(1);
  if (version != 1) {
    throw io::error_at(path, "version " + std::to_string(version) + " is not known here; expected version 1");
  }
  return document;
}

std::optional<double> number_at(const JsonPlace& place, const char* key) {
  const json* const value = find(place, key);
  if (value == nullptr) return std::nullopt;
  if (value->is_number()) return value->get<double>();
  double number = 0;
  if (!value->is_string() || !io::parse_number(value->get_ref<const std::string&>(), number)) {
    wrong_type(place, key, "a number");
  }
  return number;
}

std::optional<std::int64_t> whole_at(const JsonPlace& place, const char* key) {
  const json* const value = find(place, key);
  if (value == nullptr) return std::nullopt;
  const double number = value->is_number() ? value->get<double>() : std::nan("");
  if (std::trunc(number) != number || !(std::abs(number) <= kLargestExact)) wrong_type(place, key, "a whole number");
  return static_cast<std::int64_t>(number);
}

std::optional<bool> truth_at(const JsonPlace& place, const char* key) {
  const json* const value = find(place, key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) wrong_type(place, key, "true or false");
  return value->get<bool>();
}

std::string text_at(const JsonPlace& place, const char* key) {
  const json* const value = find(place, key);
  if (value == nullptr) return {};
  if (!value->is_string()) wrong_type(place, key, "a text");
  return value->get<std::string>();
}

const json* array_at(const JsonPlace& place, const char* key) {
  const json* const value = find(place, key);
  if (value != nullptr && !value->is_array()) wrong_type(place, key, "an array");
  return value;
}

std::optional<std::string> scalar_text(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (value.is_number_unsigned()) return grouped(value.get<std::uint64_t>());
  if (value.is_number_integer()) return std::to_string(value.get<std::int64_t>());
  if (value.is_number_float()) return number_text(value.get<double>());
  return std::nullopt;
}

}  // namespace gnmr::report
