// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/number_text.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <random>
#include <string>

namespace gnmr::io {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

double parsed(std::string_view text) {
  double value = -12345;
  EXPECT_TRUE(parse_number(text, value)) << text;
  return value;
}

TEST(NumberText, ReadsEveryForm) {
  EXPECT_EQ(parsed("0"), 0);
  EXPECT_EQ(parsed("12"), 12);
  EXPECT_EQ(parsed("+12.5"), 12.5);
  EXPECT_EQ(parsed("-12.5"), -12.5);
  EXPECT_EQ(parsed(".5"), 0.5);
  EXPECT_EQ(parsed("5."), 5);
  EXPECT_EQ(parsed("5.e1"), 50);
  EXPECT_EQ(parsed("1e+2"), 100);
  EXPECT_EQ(parsed("1E-2"), 0.01);
  EXPECT_EQ(parsed("0001"), 1);
  for (const char* text : {"inf", "INF", "+Inf", "infinity", "Infinity", "+INFINITY"})
    EXPECT_EQ(parsed(text), kInfinite);
  EXPECT_EQ(parsed("-inf"), -kInfinite);
  for (const char* text : {"nan", "NaN", "+NAN", "-nan"}) EXPECT_TRUE(std::isnan(parsed(text)));
  EXPECT_TRUE(std::signbit(parsed("-0")));
}

TEST(NumberText, TooLargeIsInfinityAndTooSmallIsZero) {
  EXPECT_EQ(parsed("1e400"), kInfinite);
  EXPECT_EQ(parsed("-1e400"), -kInfinite);
  EXPECT_EQ(parsed("1e99999999999999999999"), kInfinite);
  EXPECT_EQ(parsed("1" + std::string(400, '0')), kInfinite);
  EXPECT_EQ(parsed("1e-400"), 0);
  EXPECT_EQ(parsed("1e-99999999999999999999"), 0);
  EXPECT_EQ(parsed("0." + std::string(400, '0') + "1"), 0);
  EXPECT_EQ(parsed("0e999999"), 0);
  EXPECT_EQ(parsed("0." + std::string(400, '0') + "1e401"), 1);
  EXPECT_EQ(parsed("5e-324"), std::numeric_limits<double>::denorm_min());
  EXPECT_EQ(parsed("1.7976931348623157e308"), std::numeric_limits<double>::max());
  EXPECT_EQ(parsed("1.7976931348623159e308"), kInfinite);
}

TEST(NumberText, RefusesAnythingElse) {
  double value = 0;
  for (const char* text : {"",   "+",  "-",      ".",  "e5",    "1e",    "1e+",   "+-1", "--1", "0x10", "1,5",
                           "1 ", " 1", "nan(1)", "na", "infin", "1_000", "1.2.3", "abc", "1f",  "\xff"}) {
    EXPECT_FALSE(parse_number(text, value)) << text;
  }
}

TEST(NumberText, AgreesWithTheCLibrary) {
  std::mt19937_64 random(7);
  std::string text;
  for (int i = 0; i < 200000; ++i) {
    const double value = std::abs(std::bit_cast<double>(random()));
    if (!std::isfinite(value)) continue;
    char digits[64];
    std::snprintf(digits, sizeof digits, i % 2 == 0 ? "%.*e" : "%.*g", static_cast<int>(random() % 20), value);
    EXPECT_EQ(parsed(digits), std::strtod(digits, nullptr)) << digits;
    text.clear();
    append_number(text, value);
    EXPECT_EQ(std::strtod(text.c_str(), nullptr), value) << text;
    EXPECT_EQ(parsed(text), value);
  }
}

TEST(NumberText, WritesTheShortestForm) {
  const auto written = [](double value) {
    std::string text;
    append_number(text, value);
    return text;
  };
  EXPECT_EQ(written(0.1), "0.1");
  EXPECT_EQ(written(2), "2");
  EXPECT_EQ(written(1e300), "1e+300");
  EXPECT_EQ(written(0.12583731546791233), "0.12583731546791233");
  EXPECT_EQ(written(kInfinite), "inf");
  EXPECT_EQ(written(-std::numeric_limits<double>::quiet_NaN()), "nan");
}

TEST(NumberText, WholeNumbers) {
  std::int64_t value = 0;
  EXPECT_TRUE(parse_whole("-9223372036854775808", value));
  EXPECT_EQ(value, std::numeric_limits<std::int64_t>::min());
  EXPECT_TRUE(parse_whole("+9223372036854775807", value));
  EXPECT_EQ(value, std::numeric_limits<std::int64_t>::max());
  EXPECT_TRUE(parse_whole("007", value));
  EXPECT_EQ(value, 7);
  for (const char* text : {"", "+", "-", "+-1", "9223372036854775808", "1.0", "1e3", " 1", "1 ", "0x1"}) {
    EXPECT_FALSE(parse_whole(text, value)) << text;
  }
  EXPECT_TRUE(parse_whole_value("12.0", value));
  EXPECT_EQ(value, 12);
  EXPECT_TRUE(parse_whole_value("1e3", value));
  EXPECT_EQ(value, 1000);
  for (const char* text : {"12.5", "nan", "inf", "1e300", "9007199254740993.0"}) {
    EXPECT_FALSE(parse_whole_value(text, value)) << text;
  }
}

TEST(NumberText, Blanks) {
  EXPECT_EQ(trim_blanks(" \t a b\t "), "a b");
  EXPECT_EQ(trim_blanks(" \t"), "");
  EXPECT_TRUE(is_white(" \t"));
  EXPECT_TRUE(is_white(""));
  EXPECT_FALSE(is_white(" \r"));
}

}  // namespace
}  // namespace gnmr::io
