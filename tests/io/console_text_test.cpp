// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/console_text.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace gnmr::io {
namespace {

using Texts = std::vector<std::string>;

Texts texts_of(std::string_view line) {
  ConsoleLine console_line;
  console_line.set(line, true);
  ConsoleText text;
  Texts texts;
  while (console_line.next(text)) texts.push_back(std::to_string(text.rank) + "|" + std::string(text.text));
  return texts;
}

TEST(ConsoleText, ColoursTitlesAndMovements) {
  EXPECT_EQ(texts_of("\x1b[31ma\x1b[38;2;1;2;3mb\x1b[0m"), (Texts{"-1|ab"}));
  EXPECT_EQ(texts_of("\x1b]0;title\x07"
                     "a\x1b]0;t\x1b\\b\x1b[A"),
            (Texts{"-1|ab"}));
  EXPECT_EQ(texts_of("a\x1b"), (Texts{"-1|a"}));
  EXPECT_EQ(texts_of("a\x1b[31"), (Texts{"-1|a"}));
}

TEST(ConsoleText, RedrawnLinesAndRanks) {
  EXPECT_EQ(texts_of("a\rb\r  \rc"), (Texts{"-1|a", "-1|b", "-1|c"}));
  EXPECT_EQ(texts_of("[rank3]:x\r[rank3]: y"), (Texts{"3|x", "3| y"}));
  EXPECT_EQ(texts_of("7: [default7]: x"), (Texts{"7| x"}));
  EXPECT_EQ(texts_of("12: x"), (Texts{"12|x"}));
  EXPECT_EQ(texts_of("[3]:x"), (Texts{"-1|[3]:x"}));
  EXPECT_EQ(texts_of("[batch=3]:"), (Texts{"-1|[batch=3]:"}));
  EXPECT_EQ(texts_of("[rank99999999999999999999]:x"), (Texts{"-1|[rank99999999999999999999]:x"}));
}

TEST(ConsoleText, OnlyTheLastTextCanBeCut) {
  ConsoleLine line;
  ConsoleText text;
  line.set("a\rb", false);
  ASSERT_TRUE(line.next(text));
  EXPECT_TRUE(text.whole);
  ASSERT_TRUE(line.next(text));
  EXPECT_FALSE(text.whole);
}

TEST(ConsoleText, Numbers) {
  const auto number = [](std::string_view text) {
    double value = -1;
    return parse_console_number(text, value) ? value : std::numeric_limits<double>::quiet_NaN();
  };
  EXPECT_EQ(number("1.5"), 1.5);
  EXPECT_EQ(number("1,234"), 1234);
  EXPECT_EQ(number("12,345,678.5"), 12345678.5);
  EXPECT_EQ(number("1.5K"), 1500);
  EXPECT_EQ(number("2E"), 2e18);
  EXPECT_EQ(number("infE"), std::numeric_limits<double>::infinity());
  for (const char* text : {"", ",", "1,2", "12,34", ",123", "1,234,", "K", "1.5KK", "1.5GiB", "1,,234", "1.234,567"}) {
    EXPECT_NE(number(text), number(text)) << text;
  }
}

}  // namespace
}  // namespace gnmr::io
