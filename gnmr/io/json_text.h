// SPDX-License-Identifier: Apache-2.0
// Pieces of JSON text, appended to a string that the caller reuses.
//
// Goals: writers that print a line per step without building a document first; text that any JSON reader accepts
// whatever bytes a name holds.
// Non-goals: reading JSON and documents in memory (json.h; but what a reader's message says is put in words here),
// layout.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

namespace gnmr::io {

/// Whether `text` is well-formed UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF.
bool is_utf8(std::string_view text);

/// Appends `text` as a JSON string with its quotes; bytes that are not UTF-8 become U+FFFD.
void append_json_string(std::string& out, std::string_view text);

/// Appends the shortest text that reads back as `value`; "inf", "-inf" and "nan" as strings.
void append_json_number(std::string& out, double value);

/// Appends a whole number.
void append_json_number(std::string& out, std::int64_t value);

/// Appends a whole number.
void append_json_number(std::string& out, std::uint64_t value);

/// Appends `,"key":value`: another member of an object.
template <typename Value>
void append_json_member(std::string& out, std::string_view key, const Value& value) {
  out += ",\"";
  out += key;
  out += "\":";
  if constexpr (std::is_same_v<Value, bool>) {
    out += value ? "true" : "false";
  } else if constexpr (std::is_arithmetic_v<Value>) {
    append_json_number(out, value);
  } else {
    append_json_string(out, value);
  }
}

/// A document that is written piece by piece; commas come by themselves.
class JsonText {
 public:
  void text(std::string_view value) {
    separate();
    append_json_string(text_, value);
  }
  void truth(bool value) { plain(value ? "true" : "false"); }

  /// A value that is JSON already: a number with as many digits as its reader needs, `null`.
  void plain(std::string_view value) {
    separate();
    text_ += value;
  }

  /// The key of the value that comes next; returns the document.
  JsonText& key(std::string_view name) {
    text(name);
    text_ += ':';
    return *this;
  }

  /// An object with the keys and values that `members` writes.
  template <class Members>
  void object(const Members& members) {
    separate();
    text_ += '{';
    members();
    text_ += '}';
  }

  /// An array with what `write` writes for each item.
  template <class Items, class Write>
  void array(const Items& items, const Write& write) {
    separate();
    text_ += '[';
    for (const auto& item : items) write(item);
    text_ += ']';
  }

  const std::string& str() const { return text_; }

 private:
  void separate() {
    if (text_.empty()) return;
    const char last = text_.back();
    if (last != '[' && last != '{' && last != ':') text_ += ',';
  }

  std::string text_;
};

/// Throws an `Error` where brackets are nested deeper than any file of ours has them. To be called before a text
/// becomes a document: documents are copied and printed by functions that call themselves for each level.
void refuse_deep_json(std::string_view text);

/// What the JSON parser's message says about `text`, in our words: `not JSON: line 3, column 5: unexpected '}';
/// expected string literal`. A text without a line end is a line of something larger: then only the column is named.
std::string json_error_text(std::string_view parser_message, std::string_view text);

/// `text` in quotes for a message: escaped, and cut where it is long.
std::string in_quotes(std::string_view text);

}  // namespace gnmr::io
