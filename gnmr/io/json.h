// SPDX-License-Identifier: Apache-2.0
// JSON documents: parsed, and read by key with messages that name the key.
//
// Goals: no value of another type is taken for granted; null is as if the key were not there; "inf", "-inf" and "nan"
// are numbers; time linear in the text. Non-goals: lines that are written at each step (json_text.h), large files of
// numbers. Only for sources that have nlohmann/json: a layer links `gnmr_json`, and includes it by this header alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gnmr/core/error.h"
#include "gnmr/io/text_error.h"

namespace gnmr::io {

using Json = nlohmann::json;                  // to read: an object with many keys is searched quickly
using OrderedJson = nlohmann::ordered_json;   // to write: keys keep their order
using JsonEvents = nlohmann::json_sax<Json>;  // to read what would be too much, or lose too much, as a document

/// What an object with the same key twice is; a document in memory keeps only one of the two.
enum class RepeatedKeys : std::uint8_t { refuse, accept };

/// Parses a text; an `Error` where it is no JSON or nested too deep.
Json parse_json(std::string_view text, RepeatedKeys repeated = RepeatedKeys::refuse);

/// A number; "inf", "-inf" and "nan" as texts.
OrderedJson json_number(double value);

/// A document as one line; bytes that are not UTF-8 become U+FFFD.
std::string json_line(const OrderedJson& document);

class JsonList;

/// An object and the values in it; the document must outlive it. Each getter throws an `Error` where the value has
/// another type, and the plain ones also where it is missing; those that end in `_if` then return nothing.
class JsonObject {
 public:
  /// `path` stands before each key in messages, as in `arms[2].name`. An `Error` where `value` is no object.
  explicit JsonObject(const Json& value, std::string path = {});
  explicit JsonObject(Json&&) = delete;

  const Json& json() const { return *value_; }
  bool has(std::string_view key) const { return find(key) != nullptr; }

  double number(std::string_view key) const { return required(key, number_if(key)); }
  std::int64_t whole(std::string_view key) const { return required(key, whole_if(key)); }
  std::uint64_t count(std::string_view key) const { return required(key, count_if(key)); }
  bool truth(std::string_view key) const { return required(key, truth_if(key)); }
  std::string text(std::string_view key) const { return required(key, text_if(key)); }
  JsonObject object(std::string_view key) const { return required(key, object_if(key)); }
  JsonList list(std::string_view key) const;

  std::optional<double> number_if(std::string_view key) const;
  std::optional<std::int64_t> whole_if(std::string_view key) const;   // of 64 bits; 5 or 5.0
  std::optional<std::uint64_t> count_if(std::string_view key) const;  // a whole number that is not negative
  std::optional<bool> truth_if(std::string_view key) const;
  std::optional<std::string> text_if(std::string_view key) const;
  std::optional<JsonObject> object_if(std::string_view key) const;

  /// Lists, which must be there.
  std::vector<double> numbers(std::string_view key) const;
  std::vector<std::int64_t> wholes(std::string_view key) const;
  std::vector<std::string> texts(std::string_view key) const;
  std::vector<JsonObject> objects(std::string_view key) const;

  /// Throws an `Error` about a key.
  [[noreturn]] void fail(std::string_view key, std::string_view message) const;

  /// An `Error` unless `version` is the one that is known.
  void check_version(std::int64_t known) const;

 private:
  const Json* find(std::string_view key) const;
  const Json& list_of(std::string_view key, std::string_view expected) const;
  [[noreturn]] void fail_missing(std::string_view key) const;

  template <typename Value>
  Value required(std::string_view key, std::optional<Value> value) const {
    if (!value) fail_missing(key);
    return *std::move(value);
  }

  const Json* value_;
  std::string path_;
};

/// A list and the values in it, as `JsonObject` has them; each must be there.
class JsonList {
 public:
  /// An `Error` where `value` is no list.
  explicit JsonList(const Json& value, std::string path = {});
  explicit JsonList(Json&&) = delete;

  std::size_t size() const { return value_->size(); }

  std::int64_t whole(std::size_t index) const;
  bool truth(std::size_t index) const;
  std::string text(std::size_t index) const;
  JsonObject object(std::size_t index) const;
  JsonList list(std::size_t index) const;

 private:
  const Json& at(std::size_t index) const;

  const Json* value_;
  std::string path_;
};

/// What `read` makes of the list that `text` is; an `Error` begins with `place`.
template <typename Read>
auto read_json_list(std::string_view text, std::string_view place, Read read) {
  try {
    const Json document = parse_json(text);
    return read(JsonList(document));
  } catch (const Error& error) {
    throw error_at(place, error.what());
  }
}

/// What `read` makes of the object that `text` is; an `Error` begins with `place`.
template <typename Read>
auto read_json_object(std::string_view text, std::string_view place, Read read,
                      RepeatedKeys repeated = RepeatedKeys::refuse) {
  try {
    const Json document = parse_json(text, repeated);
    return read(JsonObject(document));
  } catch (const Error& error) {
    throw error_at(place, error.what());
  }
}

/// What a last line without a line end is.
enum class OpenEnd : std::uint8_t { torn, whole };

/// Calls `visit` for each line of a file of JSON Lines but blank ones; an `Error` has file and line. A torn last line
/// is skipped; the result is whether there was one.
bool read_json_lines(const std::string& path, OpenEnd open_end, const std::function<void(const JsonObject&)>& visit);

}  // namespace gnmr::io
