// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/number_text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <system_error>

namespace gnmr::io {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Where `word` (lower case) ends at `begin`, in any case; `begin` where it is not there.
const char* scan_word(const char* begin, const char* end, std::string_view word) {
  if (static_cast<std::size_t>(end - begin) < word.size()) return begin;
  const bool same = std::equal(word.begin(), word.end(), begin, [](char a, char b) { return a == to_lower(b); });
  return same ? begin + word.size() : begin;
}

const char* scan_non_finite(const char* begin, const char* end, double& value) {
  for (const std::string_view word : {std::string_view("infinity"), std::string_view("inf")}) {
    if (const char* after = scan_word(begin, end, word); after != begin) {
      value = kInfinity;
      return after;
    }
  }
  const char* after = scan_word(begin, end, "nan");
  if (after != begin) value = std::numeric_limits<double>::quiet_NaN();
  return after;
}

// `std::from_chars` says only that [begin, end) is out of range; which way follows from the place of the first digit
// that is not 0 and the exponent.
double out_of_range_value(const char* begin, const char* end) {
  constexpr std::int64_t kExponentLimit = 1'000'000'000'000;
  std::int64_t exponent = 0;
  bool after_point = false;
  bool significant = false;
  const char* at = begin;
  for (; at != end && (is_digit(*at) || *at == '.'); ++at) {
    if (*at == '.') {
      after_point = true;
      continue;
    }
    significant = significant || *at != '0';
    if (significant && !after_point) ++exponent;
    if (!significant && after_point) --exponent;
  }
  if (at != end) ++at;  // e or E
  const bool negative = at != end && *at == '-';
  if (at != end && (*at == '-' || *at == '+')) ++at;
  std::int64_t written = 0;
  for (; at != end && is_digit(*at); ++at) written = std::min(written * 10 + (*at - '0'), kExponentLimit);
  return exponent + (negative ? -written : written) > 0 ? kInfinity : 0.0;
}

}  // namespace

const char* scan_number(const char* begin, const char* end, double& value) {
  const char* at = begin;
  const bool negative = at != end && *at == '-';
  if (at != end && (*at == '-' || *at == '+')) ++at;
  if (at == end) return begin;
  double magnitude = 0;
  const char* after;
  if (is_digit(*at) || *at == '.') {
    const auto [stop, error] = std::from_chars(at, end, magnitude);
    if (error == std::errc::result_out_of_range) {
      magnitude = out_of_range_value(at, stop);
    } else if (error != std::errc()) {
      return begin;
    }
    after = stop;
  } else {
    after = scan_non_finite(at, end, magnitude);
  }
  if (after == at) return begin;
  value = negative ? -magnitude : magnitude;
  return after;
}

bool parse_number(std::string_view text, double& value) {
  const char* end = text.data() + text.size();
  return !text.empty() && scan_number(text.data(), end, value) == end;
}

bool parse_whole(std::string_view text, std::int64_t& value) {
  if (!text.empty() && text.front() == '+') {
    text.remove_prefix(1);
    if (!text.empty() && text.front() == '-') return false;
  }
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return !text.empty() && error == std::errc() && stop == end;
}

bool parse_whole_value(std::string_view text, std::int64_t& value) {
  if (parse_whole(text, value)) return true;
  constexpr double kExactLimit = 9007199254740992.0;  // 2^53: from here on a double does not hold every whole number
  double number = 0;
  if (!parse_number(text, number) || !(std::abs(number) < kExactLimit) || std::trunc(number) != number) return false;
  value = static_cast<std::int64_t>(number);
  return true;
}

void append_number(std::string& text, double value) {
  if (std::isnan(value)) {
    text += "nan";
    return;
  }
  std::array<char, 32> digits;
  const auto result = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  text.append(digits.data(), result.ptr);
}

std::string_view trim_blanks(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

bool is_white(std::string_view text) { return std::all_of(text.begin(), text.end(), is_blank); }

}  // namespace gnmr::io
