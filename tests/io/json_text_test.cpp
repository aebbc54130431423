// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/json_text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "gnmr/core/error.h"

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

std::string parser_message(const std::string& text) {
  try {
    const nlohmann::json parsed = nlohmann::json::parse(text);
    return "accepted: " + parsed.dump();
  } catch (const nlohmann::json::exception& error) {
    return json_error_text(error.what(), text);
  }
}

TEST(JsonText, ErrorsOfTheParserAreInOurWords) {
  EXPECT_EQ(parser_message("{\n\"a\" 3}\n"), "not JSON: line 2, column 5: unexpected number literal; expected ':'");
  EXPECT_EQ(parser_message("{\"a\":1,}"), "not JSON: column 8: unexpected '}'; expected string literal");
  EXPECT_EQ(parser_message("tru"), "not JSON: column 4: invalid literal; last read: \"tru\"");
  EXPECT_EQ(parser_message("[1e999]"), "not JSON: the number \"1e999\" is too large");
  EXPECT_EQ(parser_message(""), "not JSON: column 1: unexpected end of input; expected '[', '{', or a literal");
}

TEST(JsonText, DeepNestingIsRefused) {
  const auto nested = [](std::size_t levels) { return std::string(levels, '[') + std::string(levels, ']'); };
  EXPECT_NO_THROW(refuse_deep_json(nested(200)));
  EXPECT_THROW(refuse_deep_json(nested(201)), Error);
  EXPECT_NO_THROW(refuse_deep_json("\"\\\"" + std::string(1000, '[') + "\"")) << "brackets in a text";
  std::string flat;
  for (int i = 0; i < 1000; ++i) flat += "[{}],";
  EXPECT_NO_THROW(refuse_deep_json(flat));
}

TEST(JsonText, ErrorsOfTheParserAreShortAndText) {
  const std::string open = parser_message("\"" + std::string(100000, 'x'));
  EXPECT_LT(open.size(), 250U);
  EXPECT_NE(open.find("missing closing quote"), std::string::npos) << open;
  for (const std::string& text : {std::string("\"\xFF\""), std::string("\x1B[2J"), std::string("[\"\\q\"]")}) {
    const std::string message = parser_message(text);
    EXPECT_TRUE(message.starts_with("not JSON: column ")) << message;
    EXPECT_TRUE(is_utf8(message)) << message;
    EXPECT_EQ(message.find('\x1B'), std::string::npos);
    EXPECT_EQ(message.find("json.exception"), std::string::npos);
  }
}

TEST(JsonText, CommasComeByThemselves) {
  JsonText out;
  out.object([&] {
    out.key("a").plain("1e3");
    out.key("b,[").text("x:");
    out.key("c").array(std::vector<int>{1, 2}, [&](int value) { out.plain(std::to_string(value)); });
    out.key("d").object([] {});
    out.key("e").array(std::vector<int>{1, 2}, [&](int) { out.object([&] { out.key("f").truth(true); }); });
  });
  EXPECT_EQ(out.str(), R"({"a":1e3,"b,[":"x:","c":[1,2],"d":{},"e":[{"f":true},{"f":true}]})");
}

}  // namespace
}  // namespace gnmr::io
