// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/json.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <memory>
#include <unordered_set>
#include <utility>

#include "gnmr/io/byte_source.h"
#include "gnmr/io/json_text.h"
#include "gnmr/io/line_reader.h"
#include "gnmr/io/number_text.h"

namespace gnmr::io {
namespace {

constexpr double kTwoTo53 = 9007199254740992.0;  // whole numbers below it are exact in a double

/// Looks at a text without making a document of it. The library's own parser with a callback is not linear: behind each
/// value it walks through all values beside it.
class RepeatedKeyFinder : public JsonEvents {
 public:
  bool start_object(std::size_t) override {
    if (depth_ == open_.size()) open_.emplace_back();
    open_[depth_++].clear();
    return true;
  }
  bool key(std::string& key) override {
    if (!open_[depth_ - 1].insert(key).second) throw Error(in_quotes(key) + " is there twice");
    return true;
  }
  bool end_object() override {
    --depth_;
    return true;
  }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(std::int64_t) override { return true; }
  bool number_unsigned(std::uint64_t) override { return true; }
  bool number_float(double, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(Json::binary_t&) override { return true; }
  bool start_array(std::size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(std::size_t, const std::string&, const Json::exception&) override { return false; }

 private:
  std::vector<std::unordered_set<std::string>> open_;  // the keys so far of each object that is open
  std::size_t depth_ = 0;
};

[[noreturn]] void fail_type(const std::string& path, std::string_view key, std::string_view expected, const Json& got) {
  throw Error(fmt::format("`{}{}`: expected {}, got {}", path, key, expected, got.type_name()));
}

double number_of(const Json& value, const std::string& path, std::string_view key) {
  if (value.is_number()) return value.get<double>();
  if (value == "inf") return std::numeric_limits<double>::infinity();
  if (value == "-inf") return -std::numeric_limits<double>::infinity();
  if (value == "nan") return std::numeric_limits<double>::quiet_NaN();
  fail_type(path, key, "a number", value);
}

std::int64_t whole_of(const Json& value, const std::string& path, std::string_view key) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<std::uint64_t>();
    if (number <= std::uint64_t{std::numeric_limits<std::int64_t>::max()}) return static_cast<std::int64_t>(number);
  } else if (value.is_number_integer()) {
    return value.get<std::int64_t>();
  } else if (value.is_number_float()) {
    const double number = value.get<double>();
    if (std::trunc(number) == number && std::abs(number) < kTwoTo53) return static_cast<std::int64_t>(number);
    throw Error(fmt::format("`{}{}`: expected a whole number, got {}", path, key, number));
  }
  fail_type(path, key, "a whole number of 64 bits", value);
}

bool truth_of(const Json& value, const std::string& path, std::string_view key) {
  if (!value.is_boolean()) fail_type(path, key, "true or false", value);
  return value.get<bool>();
}

std::string text_of(const Json& value, const std::string& path, std::string_view key) {
  if (!value.is_string()) fail_type(path, key, "a string", value);
  return value.get<std::string>();
}

}  // namespace

Json parse_json(std::string_view text, RepeatedKeys repeated) {
  refuse_deep_json(text);
  try {
    RepeatedKeyFinder finder;
    // What else is wrong with the text is thrown by the parser below.
    if (repeated == RepeatedKeys::refuse) Json::sax_parse(text, &finder);
    return Json::parse(text);
  } catch (const Json::exception& error) {
    throw Error(json_error_text(error.what(), text));
  }
}

std::string json_line(const OrderedJson& document) {
  return document.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

OrderedJson json_number(double value) {
  if (std::isfinite(value)) return value;
  if (std::isnan(value)) return "nan";
  return value > 0 ? "inf" : "-inf";
}

JsonObject::JsonObject(const Json& value, std::string path) : value_(&value), path_(std::move(path)) {
  if (value.is_object()) return;
  if (path_.empty()) throw Error(fmt::format("expected a JSON object, got {}", value.type_name()));
  path_.pop_back();
  fail_type(path_, "", "an object", value);
}

const Json* JsonObject::find(std::string_view key) const {
  const auto found = value_->find(key);
  return found == value_->end() || found->is_null() ? nullptr : &*found;
}

void JsonObject::fail(std::string_view key, std::string_view message) const {
  throw Error(fmt::format("`{}{}`: {}", path_, key, message));
}

void JsonObject::fail_missing(std::string_view key) const { throw Error(fmt::format("`{}{}` is missing", path_, key)); }

std::optional<double> JsonObject::number_if(std::string_view key) const {
  const Json* const value = find(key);
  return value == nullptr ? std::nullopt : std::optional(number_of(*value, path_, key));
}

std::optional<std::int64_t> JsonObject::whole_if(std::string_view key) const {
  const Json* const value = find(key);
  return value == nullptr ? std::nullopt : std::optional(whole_of(*value, path_, key));
}

std::optional<std::uint64_t> JsonObject::count_if(std::string_view key) const {
  const Json* const value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_number_unsigned()) return value->get<std::uint64_t>();
  const std::int64_t number = whole_of(*value, path_, key);
  if (number < 0) throw Error(fmt::format("`{}{}`: expected no less than 0, got {}", path_, key, number));
  return static_cast<std::uint64_t>(number);
}

std::optional<bool> JsonObject::truth_if(std::string_view key) const {
  const Json* const value = find(key);
  return value == nullptr ? std::nullopt : std::optional(truth_of(*value, path_, key));
}

std::optional<std::string> JsonObject::text_if(std::string_view key) const {
  const Json* const value = find(key);
  return value == nullptr ? std::nullopt : std::optional(text_of(*value, path_, key));
}

std::optional<JsonObject> JsonObject::object_if(std::string_view key) const {
  const Json* const value = find(key);
  return value == nullptr ? std::nullopt
                          : std::optional<JsonObject>(std::in_place, *value, fmt::format("{}{}.", path_, key));
}

const Json& JsonObject::list_of(std::string_view key, std::string_view expected) const {
  const Json* const value = find(key);
  if (value == nullptr) fail_missing(key);
  if (!value->is_array()) fail_type(path_, key, expected, *value);
  return *value;
}

std::vector<double> JsonObject::numbers(std::string_view key) const {
  std::vector<double> numbers;
  for (const Json& value : list_of(key, "a list of numbers")) numbers.push_back(number_of(value, path_, key));
  return numbers;
}

std::vector<std::int64_t> JsonObject::wholes(std::string_view key) const {
  std::vector<std::int64_t> numbers;
  for (const Json& value : list_of(key, "a list of whole numbers")) numbers.push_back(whole_of(value, path_, key));
  return numbers;
}

std::vector<std::string> JsonObject::texts(std::string_view key) const {
  std::vector<std::string> texts;
  for (const Json& value : list_of(key, "a list of strings")) texts.push_back(text_of(value, path_, key));
  return texts;
}

std::vector<JsonObject> JsonObject::objects(std::string_view key) const {
  std::vector<JsonObject> objects;
  for (const Json& value : list_of(key, "a list of objects")) {
    objects.emplace_back(value, fmt::format("{}{}[{}].", path_, key, objects.size()));
  }
  return objects;
}

JsonList JsonObject::list(std::string_view key) const {
  return JsonList(list_of(key, "a list"), fmt::format("{}{}", path_, key));
}

JsonList::JsonList(const Json& value, std::string path) : value_(&value), path_(std::move(path)) {
  if (value.is_array()) return;
  if (path_.empty()) throw Error(fmt::format("expected a list, got {}", value.type_name()));
  fail_type(path_, "", "a list", value);
}

const Json& JsonList::at(std::size_t index) const {
  if (index >= size()) throw Error(fmt::format("`{}[{}]` is missing", path_, index));
  return (*value_)[index];
}

std::int64_t JsonList::whole(std::size_t index) const { return whole_of(at(index), path_, fmt::format("[{}]", index)); }

bool JsonList::truth(std::size_t index) const { return truth_of(at(index), path_, fmt::format("[{}]", index)); }

std::string JsonList::text(std::size_t index) const { return text_of(at(index), path_, fmt::format("[{}]", index)); }

JsonObject JsonList::object(std::size_t index) const {
  return JsonObject(at(index), fmt::format("{}[{}].", path_, index));
}

JsonList JsonList::list(std::size_t index) const { return JsonList(at(index), fmt::format("{}[{}]", path_, index)); }

void JsonObject::check_version(std::int64_t known) const {
  const std::int64_t version = whole("version");
  if (version != known) throw Error(fmt::format("version {}, this program reads {}", version, known));
}

bool read_json_lines(const std::string& path, OpenEnd open_end, const std::function<void(const JsonObject&)>& visit) {
  const std::unique_ptr<ByteSource> source = open_byte_source(path);
  LineReader lines(*source);
  std::string_view line;
  while (lines.next(line)) {
    if (open_end == OpenEnd::torn && !lines.ending().ends_with('\n')) return true;
    if (is_white(line)) continue;
    read_json_object(line, at_line(source->name(), lines.line_number()), visit);
  }
  return false;
}

}  // namespace gnmr::io
