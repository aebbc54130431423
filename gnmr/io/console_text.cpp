// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/console_text.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "gnmr/io/number_text.h"

namespace gnmr::io {
namespace {

constexpr char kEscape = '\x1b';
constexpr char kBell = '\x07';

bool is_letter(char character) { return to_lower(character) >= 'a' && to_lower(character) <= 'z'; }

// Where the escape sequence at `at` ends: `ESC [ ... letter` (colours, movements), `ESC ] ... BEL` (titles), or two
// bytes.
std::size_t after_escape(std::string_view line, std::size_t at) {
  std::size_t end = at + 1;
  if (end == line.size()) return end;
  const char kind = line[end++];
  if (kind == '[') {
    while (end < line.size() && (line[end] < '@' || line[end] > '~')) ++end;
    return std::min(end + 1, line.size());
  }
  if (kind == ']') {
    while (end < line.size() && line[end] != kBell && line[end] != kEscape) ++end;
    if (end < line.size() && line[end] == kBell) return end + 1;
    return std::min(end + 2, line.size());
  }
  return end;
}

void strip_escapes(std::string_view line, std::string& plain) {
  plain.clear();
  std::size_t at = 0;
  while (at < line.size()) {
    const std::size_t escape = std::min(line.find(kEscape, at), line.size());
    plain.append(line.substr(at, escape - at));
    at = escape == line.size() ? escape : after_escape(line, escape);
  }
}

// Takes `[rank0]:`, `[default0]:` or `0: ` from the front of `text`; false where there is none.
bool take_rank(std::string_view& text, std::int64_t& rank) {
  const bool bracketed = text.starts_with('[');
  std::size_t digits = bracketed ? 1 : 0;
  while (bracketed && digits < text.size() && is_letter(text[digits])) ++digits;
  std::size_t end = digits;
  while (end < text.size() && is_digit(text[end])) ++end;
  const std::string_view closing = bracketed ? "]:" : ": ";
  if (!text.substr(end).starts_with(closing)) return false;
  if (bracketed && digits == 1) return false;
  if (!parse_whole(text.substr(digits, end - digits), rank)) return false;
  text.remove_prefix(end + closing.size());
  return true;
}

}  // namespace

void ConsoleLine::set(std::string_view line, bool ended) {
  ended_ = ended;
  rest_ = line;
  if (line.empty() || std::memchr(line.data(), kEscape, line.size()) == nullptr) return;
  strip_escapes(line, plain_);
  rest_ = plain_;
}

bool ConsoleLine::next(ConsoleText& text) {
  while (!rest_.empty()) {
    const std::size_t redraw = std::min(rest_.find('\r'), rest_.size());
    text.text = rest_.substr(0, redraw);
    text.whole = ended_ || redraw < rest_.size();
    text.rank = kNoRank;
    rest_.remove_prefix(std::min(redraw + 1, rest_.size()));
    // Both may be there: `7: [default7]: iteration ...`.
    if (take_rank(text.text, text.rank)) take_rank(text.text, text.rank);
    if (!is_white(text.text)) return true;
  }
  return false;
}

bool parse_console_number(std::string_view text, double& value) {
  if (parse_number(text, value)) return true;
  double factor = 1;
  constexpr std::string_view kThousands = "KMBTPE";
  if (!text.empty()) {
    const std::size_t place = kThousands.find(text.back());
    if (place != std::string_view::npos) {
      factor = std::pow(1000.0, static_cast<double>(place + 1));
      text.remove_suffix(1);
    }
  }
  // Commas stand before groups of three digits, and a number of that many digits is short.
  constexpr std::size_t kLongest = 64;
  if (text.empty() || text.size() > kLongest) return false;
  std::string digits;
  const std::size_t point = std::min(text.find('.'), text.size());
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] != ',') {
      digits += text[at];
    } else if (at == 0 || at >= point || (point - at) % 4 != 0 || !is_digit(text[at - 1])) {
      return false;
    }
  }
  if (!parse_number(digits, value)) return false;
  value *= factor;
  return true;
}

}  // namespace gnmr::io
