// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/json_text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

namespace gnmr::io {
namespace {

std::string json_of(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

std::string json_of(double value) {
  std::string out;
  append_json_number(out, value);
  return out;
}

// An encoder that knows nothing of the checker.
std::string utf8_of(std::uint32_t point, int length) {
  const auto byte = [](std::uint32_t bits) { return static_cast<char>(static_cast<unsigned char>(bits)); };
  if (length == 1) return {byte(point)};
  if (length == 2) return {byte(0xC0U | (point >> 6U)), byte(0x80U | (point & 0x3FU))};
  if (length == 3) {
    return {byte(0xE0U | (point >> 12U)), byte(0x80U | ((point >> 6U) & 0x3FU)), byte(0x80U | (point & 0x3FU))};
  }
  return {byte(0xF0U | (point >> 18U)), byte(0x80U | ((point >> 12U) & 0x3FU)), byte(0x80U | ((point >> 6U) & 0x3FU)),
          byte(0x80U | (point & 0x3FU))};
}

int shortest_length(std::uint32_t point) { return point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4; }

TEST(JsonText, Utf8AcceptsEveryScalarAndNoSurrogateOrOverlongForm) {
  for (std::uint32_t point = 0; point < 0x120000; ++point) {
    const int length = shortest_length(point);
    const bool surrogate = point >= 0xD800 && point <= 0xDFFF;
    ASSERT_EQ(is_utf8(utf8_of(point, length)), !surrogate && point <= 0x10FFFF) << point;
    if (length < 4) {
      ASSERT_FALSE(is_utf8(utf8_of(point, length + 1))) << point;
    }
  }
}

TEST(JsonText, Utf8RefusesCutAndStrayBytes) {
  EXPECT_TRUE(is_utf8(""));
  EXPECT_TRUE(is_utf8("layers.0.attn"));
  for (const char* text : {"\x80", "a\xFF", "\xC3", "\xE2\x82", "\xF0\x9F\x98", "\xC3\x28", "\xE2\x28\xA1"}) {
    EXPECT_FALSE(is_utf8(text)) << text;
  }
}

TEST(JsonText, StringsReadBackWithAnotherJsonReader) {
  std::string all;
  for (int byte = 0; byte < 128; ++byte) all += static_cast<char>(byte);
  all += "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80";
  EXPECT_EQ(nlohmann::json::parse(json_of(all)).get<std::string>(), all);
  EXPECT_EQ(json_of("a\"b\\c\nd"), R"("a\"b\\c\nd")");
  EXPECT_EQ(json_of(std::string_view("\x01", 1)), R"("\u0001")");
  EXPECT_EQ(json_of(all).find('\n'), std::string::npos);
}

TEST(JsonText, BytesThatAreNotUtf8BecomeTheReplacementCharacter) {
  EXPECT_EQ(json_of("a\xFFz"), "\"a\xEF\xBF\xBDz\"");
  EXPECT_EQ(json_of("\xC3"), "\"\xEF\xBF\xBD\"");
}

TEST(JsonText, NumbersReadBackBitForBit) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 20000; ++i) {
    const double value = std::bit_cast<double>(random());
    if (!std::isfinite(value)) continue;
    ASSERT_EQ(std::bit_cast<std::uint64_t>(std::strtod(json_of(value).c_str(), nullptr)),
              std::bit_cast<std::uint64_t>(value));
  }
  EXPECT_EQ(json_of(0.1), "0.1");
  EXPECT_EQ(json_of(160.0), "160");
}

TEST(JsonText, NumbersThatAreNotFiniteAreStrings) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(json_of(kInfinity), "\"inf\"");
  EXPECT_EQ(json_of(-kInfinity), "\"-inf\"");
  EXPECT_EQ(json_of(std::nan("")), "\"nan\"");
  EXPECT_EQ(json_of(-std::nan("")), "\"nan\"");
}

TEST(JsonText, WholeNumbersAtTheirLimits) {
  std::string out;
  append_json_number(out, std::numeric_limits<std::int64_t>::min());
  out += ' ';
  append_json_number(out, std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(out, "-9223372036854775808 18446744073709551615");
}

TEST(JsonText, MessagesQuoteAndCut) {
  EXPECT_EQ(in_quotes("a\tb"), "\"a\\tb\"");
  const std::string cut = in_quotes(std::string(5000, 'x'));
  EXPECT_LT(cut.size(), 120U);
  EXPECT_TRUE(cut.ends_with("x...\"")) << cut;
  std::string euros;
  for (int i = 0; i < 100; ++i) euros += "\xE2\x82\xAC";
  EXPECT_TRUE(is_utf8(in_quotes(euros)));
  EXPECT_EQ(in_quotes(euros).find("\xEF\xBF\xBD"), std::string::npos);
}

}  // namespace
}  // namespace gnmr::io
