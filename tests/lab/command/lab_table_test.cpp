// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab_table.h"

#include <gtest/gtest.h>

#include <sstream>

namespace gnmr::app {
namespace {

lab::Summary sample() {
  lab::Summary summary{.columns = {{"loss", "loss", ""}, {"gap", "gap closed", ""}, {"time", "step ms", ""}},
                       .rows = {{.arm = "high", .label = "high precision", .cells = {{"loss", {.text = "1.5 ± 0.1"}}}},
                                {.arm = "low", .label = "low", .cells = {{"gap", {.text = "50%"}}}}},
                       .notes = {"a note"}};
  return summary;
}

TEST(LabTable, ColumnsAreAligned) {
  EXPECT_EQ(table_text(sample(), 80),
            "                     loss  gap closed  step ms\n"
            "high precision  1.5 ± 0.1           -        -\n"
            "low                     -         50%        -\n"
            "a note\n");
}

TEST(LabTable, WhatDoesNotFitComesBelow) {
  const std::string text = table_text(sample(), 40);
  EXPECT_EQ(text,
            "                     loss  gap closed\n"
            "high precision  1.5 ± 0.1           -\n"
            "low                     -         50%\n"
            "\n"
            "                step ms\n"
            "high precision        -\n"
            "low                   -\n"
            "a note\n");
  // However narrow, a column stands in each block.
  EXPECT_NE(table_text(sample(), 1).find("step ms"), std::string::npos);
}

TEST(LabTable, WidthsCountCharactersNotBytes) {
  EXPECT_EQ(shown_width("a ± b"), 5U);
  EXPECT_EQ(shown_width("⣿⣿"), 2U);
  EXPECT_EQ(pad_left("±", 3), "  ±");
  EXPECT_EQ(pad_right("±", 3), "±  ");
  EXPECT_EQ(cut_to("ab⣿cd", 3), "ab⣿");
  EXPECT_EQ(cut_to("ab", 3), "ab");
}

TEST(LabTable, ControlCharactersDoNoHarm) {
  lab::Summary summary = sample();
  summary.rows[0].label = "bad\x1b[2J";
  EXPECT_EQ(table_text(summary, 80).find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace gnmr::app
