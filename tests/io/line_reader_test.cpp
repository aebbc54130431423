// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/line_reader.h"

#include <gtest/gtest.h>

#include <string>

namespace gnmr::io {
namespace {

TEST(LineReader, LinesOfAnyLengthAndEnding) {
  const std::string longest = std::string(1000000, 'x');
  const auto source = memory_byte_source("m", "\xEF\xBB\xBFone\r\n\n" + longest + "\nlast");
  LineReader lines(*source);
  std::string_view line;
  for (int pass = 0; pass < 2; ++pass) {
    ASSERT_TRUE(lines.next(line));
    EXPECT_EQ(line, "one");
    EXPECT_EQ(lines.ending(), "\r\n");
    ASSERT_TRUE(lines.next(line));
    EXPECT_EQ(line, "");
    EXPECT_EQ(lines.ending(), "\n");
    ASSERT_TRUE(lines.next(line));
    EXPECT_EQ(line, longest);
    ASSERT_TRUE(lines.next(line));
    EXPECT_EQ(line, "last");
    EXPECT_EQ(lines.ending(), "");
    EXPECT_EQ(lines.line_number(), 4U);
    EXPECT_FALSE(lines.next(line));
    lines.rewind();
  }
}

}  // namespace
}  // namespace gnmr::io
