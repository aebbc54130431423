// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/log_json.h"

#include <charconv>
#include <cstdint>
#include <vector>

#include "gnmr/io/number_text.h"

namespace gnmr::io {
namespace {

constexpr std::size_t kMaxDepth = 256;

// Sinks look at the whole path of every value; without a limit a hostile name would make that quadratic.
constexpr std::size_t kMaxPathBytes = 16384;

bool is_json_space(char character) {
  return character == ' ' || character == '\t' || character == '\n' || character == '\r';
}

void append_utf8(std::string& text, std::uint32_t code) {
  const auto append = [&](std::uint32_t byte) { text += static_cast<char>(static_cast<unsigned char>(byte)); };
  if (code < 0x80) {
    append(code);
  } else if (code < 0x800) {
    append(0xC0U | (code >> 6));
    append(0x80U | (code & 0x3FU));
  } else if (code < 0x10000) {
    append(0xE0U | (code >> 12));
    append(0x80U | ((code >> 6) & 0x3FU));
    append(0x80U | (code & 0x3FU));
  } else {
    append(0xF0U | (code >> 18));
    append(0x80U | ((code >> 12) & 0x3FU));
    append(0x80U | ((code >> 6) & 0x3FU));
    append(0x80U | (code & 0x3FU));
  }
}

class JsonScanner {
 public:
  JsonScanner(std::string_view text, JsonSink& sink) : text_(text), sink_(sink) {}

  void scan() {
    take_value();
    while (!open_.empty()) take_in_container();
    skip_space();
    if (at_ != text_.size()) fail("text after the end");
  }

 private:
  struct Container {
    std::size_t path_size;  // of the container itself
    bool is_array;
    std::uint64_t count;
  };

  void skip_space() {
    while (at_ < text_.size() && is_json_space(text_[at_])) ++at_;
  }

  char peek() {
    skip_space();
    if (at_ == text_.size()) fail("the end is missing");
    return text_[at_];
  }

  void take_in_container() {
    Container& container = open_.back();
    path_.resize(container.path_size);
    if (peek() == (container.is_array ? ']' : '}')) {
      close_container();
      return;
    }
    if (container.count > 0) {
      if (text_[at_] != ',') fail("a comma is missing");
      ++at_;
      peek();
    }
    if (!path_.empty()) path_ += '.';
    if (container.is_array) {
      path_ += std::to_string(container.count);
    } else {
      if (text_[at_] != '"') fail("a name in quotes is missing");
      path_ += take_string();
      if (path_.size() > kMaxPathBytes) fail("a name is too long");
      if (peek() != ':') fail("a colon is missing");
      ++at_;
    }
    ++container.count;
    take_value();
  }

  void close_container() {
    ++at_;
    const bool is_array = open_.back().is_array;
    open_.pop_back();
    if (!is_array) sink_.object_end(path_);
  }

  void take_value() {
    const char first = peek();
    if (first == '{' || first == '[') {
      if (open_.size() == kMaxDepth) fail("nested too deeply");
      ++at_;
      open_.push_back({.path_size = path_.size(), .is_array = first == '[', .count = 0});
      return;
    }
    JsonScalar value;
    if (first == '"') {
      value = {.kind = JsonScalar::Kind::text, .text = take_string()};
    } else if (take_word("null")) {
      value.kind = JsonScalar::Kind::null;
    } else if (take_word("true") || take_word("false")) {
      value.kind = JsonScalar::Kind::boolean;
    } else {
      const char* begin = text_.data() + at_;
      const char* after = scan_number(begin, text_.data() + text_.size(), value.number);
      if (after == begin) fail("not a value");
      value.kind = JsonScalar::Kind::number;
      value.text = {begin, after};
      at_ += value.text.size();
    }
    sink_.scalar(path_, value);
  }

  bool take_word(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  // The string whose opening quote is next: a view of the text, or of `decoded_` where it has escapes.
  std::string_view take_string() {
    const std::size_t begin = ++at_;
    const std::size_t stop = text_.find_first_of("\"\\", begin);
    if (stop == std::string_view::npos) fail("the quote is never closed");
    at_ = stop;
    if (text_[stop] == '"') {
      ++at_;
      return text_.substr(begin, stop - begin);
    }
    decoded_.assign(text_.substr(begin, stop - begin));
    while (at_ < text_.size()) {
      const char character = text_[at_++];
      if (character == '"') return decoded_;
      if (character == '\\') {
        take_escape();
      } else {
        decoded_ += character;
      }
    }
    fail("the quote is never closed");
  }

  void take_escape() {
    if (at_ == text_.size()) fail("the quote is never closed");
    const char character = text_[at_++];
    switch (character) {
      case '"':
      case '\\':
      case '/':
        decoded_ += character;
        return;
      case 'b':
        decoded_ += '\b';
        return;
      case 'f':
        decoded_ += '\f';
        return;
      case 'n':
        decoded_ += '\n';
        return;
      case 'r':
        decoded_ += '\r';
        return;
      case 't':
        decoded_ += '\t';
        return;
      case 'u':
        append_utf8(decoded_, take_code_point());
        return;
      default:
        fail("an unknown escape");
    }
  }

  std::uint32_t take_code_point() {
    const std::uint32_t first = take_hex();
    const bool is_high_surrogate = first >= 0xD800 && first < 0xDC00;
    if (!is_high_surrogate || !text_.substr(at_).starts_with("\\u")) return first;
    const std::size_t before = at_;
    at_ += 2;
    const std::uint32_t second = take_hex();
    if (second >= 0xDC00 && second < 0xE000) return 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
    at_ = before;
    return first;
  }

  std::uint32_t take_hex() {
    const std::string_view digits = text_.substr(at_, 4);
    std::uint32_t code = 0;
    const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
    if (digits.size() != 4 || error != std::errc() || stop != digits.data() + 4) fail("an unknown escape");
    at_ += 4;
    return code;
  }

  [[noreturn]] void fail(const char* what) const { throw JsonError(std::string("not JSON: ") + what, at_); }

  std::string_view text_;
  JsonSink& sink_;
  std::size_t at_ = 0;
  std::string path_;
  std::string decoded_;
  std::vector<Container> open_;
};

}  // namespace

bool JsonScalar::as_number(double& value) const {
  if (kind == Kind::text) return parse_number(text, value);
  value = number;
  return kind == Kind::number;
}

void scan_json(std::string_view text, JsonSink& sink) { JsonScanner(text, sink).scan(); }

}  // namespace gnmr::io
