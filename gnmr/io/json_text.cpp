// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/json_text.h"

#include <array>
#include <charconv>
#include <cmath>

#include "gnmr/core/error.h"
#include "gnmr/io/number_text.h"

namespace gnmr::io {
namespace {

bool is_continuation(unsigned char byte) { return (byte & 0xC0U) == 0x80U; }

// Bytes of the well-formed sequence that starts at `at`; 0 where there is none.
std::size_t sequence_length(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t offset) { return static_cast<unsigned char>(text[at + offset]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  if (first < 0xC2 || first > 0xF4) return 0;
  const std::size_t length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  if (text.size() - at < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if (!is_continuation(byte(i))) return 0;
  }
  const unsigned char second = byte(1);
  const bool overlong = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
  const bool surrogate = first == 0xED && second > 0x9F;
  const bool beyond_unicode = first == 0xF4 && second > 0x8F;
  return overlong || surrogate || beyond_unicode ? 0 : length;
}

bool is_plain(unsigned char byte) { return byte >= 0x20 && byte < 0x80 && byte != '"' && byte != '\\'; }

void append_escaped_ascii(std::string& out, char character) {
  switch (character) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    default:
      constexpr std::string_view kDigits = "0123456789abcdef";
      out += "\\u00";
      out += kDigits[static_cast<unsigned char>(character) >> 4U];
      out += kDigits[static_cast<unsigned char>(character) & 0xFU];
      return;
  }
}

// Without the quotes that stand around it.
std::string_view bare(std::string_view quoted) {
  if (quoted.starts_with('\'')) quoted.remove_prefix(1);
  if (quoted.ends_with('\'')) quoted.remove_suffix(1);
  return quoted;
}

template <typename Whole>
void append_whole(std::string& out, Whole value) {
  std::array<char, 20> digits;
  const auto result = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  out.append(digits.data(), result.ptr);
}

}  // namespace

bool is_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = sequence_length(text, at);
    if (length == 0) return false;
    at += length;
  }
  return true;
}

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  std::size_t at = 0;
  while (at < text.size()) {
    std::size_t plain_end = at;
    while (plain_end < text.size() && is_plain(static_cast<unsigned char>(text[plain_end]))) ++plain_end;
    out.append(text, at, plain_end - at);
    at = plain_end;
    if (at == text.size()) break;
    const std::size_t length = sequence_length(text, at);
    if (length == 0) {
      out += "\xEF\xBF\xBD";
    } else if (length == 1) {
      append_escaped_ascii(out, text[at]);
    } else {
      out.append(text, at, length);
    }
    at += length == 0 ? 1 : length;
  }
  out += '"';
}

void append_json_number(std::string& out, double value) {
  if (std::isnan(value)) {
    out += "\"nan\"";
  } else if (std::isinf(value)) {
    out += value < 0 ? "\"-inf\"" : "\"inf\"";
  } else {
    append_number(out, value);
  }
}

void append_json_number(std::string& out, std::int64_t value) { append_whole(out, value); }
void append_json_number(std::string& out, std::uint64_t value) { append_whole(out, value); }

void refuse_deep_json(std::string_view text) {
  constexpr std::size_t kDeepest = 200;
  std::size_t depth = 0;
  bool in_string = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char character = text[at];
    if (in_string) {
      if (character == '\\') ++at;
      in_string = character != '"';
    } else if (character == '"') {
      in_string = true;
    } else if (character == '[' || character == '{') {
      if (++depth > kDeepest) {
        throw Error("not JSON that is read here: byte " + std::to_string(at) + " is nested deeper than " +
                    std::to_string(kDeepest) + " levels");
      }
    } else if ((character == ']' || character == '}') && depth > 0) {
      --depth;
    }
  }
}

std::string json_error_text(std::string_view parser_message, std::string_view text) {
  // `[json.exception.parse_error.101] parse error at line 1, column 2: syntax error while parsing value - unexpected
  // ...`
  constexpr std::string_view kAt = "parse error at ";
  constexpr std::string_view kOverflow = "number overflow parsing ";
  constexpr std::string_view kLastRead = "; last read: ";
  std::string_view rest = parser_message;
  const auto cut_until = [&rest](std::string_view end) {
    const std::size_t at = rest.find(end);
    if (at != std::string_view::npos) rest.remove_prefix(at + end.size());
  };
  if (rest.starts_with('[')) cut_until("] ");
  std::string_view place;
  if (rest.starts_with(kAt)) {
    place = rest.substr(kAt.size(), rest.find(": ") - kAt.size());
    cut_until(": ");
  }
  constexpr std::string_view kFirstLine = "line 1, ";
  if (text.find('\n') == std::string_view::npos && place.starts_with(kFirstLine))
    place.remove_prefix(kFirstLine.size());
  if (rest.starts_with("syntax error while parsing ")) cut_until(" - ");
  std::string out = "not JSON: " + std::string(place) + (place.empty() ? "" : ": ");
  if (rest.starts_with(kOverflow)) {
    return out + "the number " + in_quotes(bare(rest.substr(kOverflow.size()))) + " is too large";
  }
  // What was read last is the file's: it may be long, and any bytes.
  const std::size_t read = rest.find(kLastRead);
  out += rest.substr(0, read);
  if (read == std::string_view::npos) return out;
  std::string_view shown = rest.substr(read + kLastRead.size());
  const std::size_t expected = shown.rfind("'; expected ");
  const std::string_view after = expected == std::string_view::npos ? std::string_view() : shown.substr(expected + 1);
  shown = shown.substr(0, expected);
  return out + "; last read: " + in_quotes(bare(shown)) + std::string(after);
}

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kLongest = 100;
  std::string out;
  if (text.size() <= kLongest) {
    append_json_string(out, text);
    return out;
  }
  std::size_t cut = kLongest;
  while (cut > kLongest - 4 && is_continuation(static_cast<unsigned char>(text[cut]))) --cut;
  append_json_string(out, text.substr(0, cut));
  out.insert(out.size() - 1, "...");
  return out;
}

}  // namespace gnmr::io
