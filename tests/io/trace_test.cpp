// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/trace.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>

#include "io/trace_testing.h"

namespace gnmr::io {
namespace {

using testing::error_in;
using testing::message_of;
using testing::read_text;

TEST(TraceFormats, NamesAreUniqueAndReadBack) {
  std::set<std::string_view> names;
  for (const TraceFormatInfo& info : trace_format_names()) {
    EXPECT_TRUE(names.insert(info.name).second);
    EXPECT_FALSE(info.help.empty());
    EXPECT_EQ(trace_format_by_name(info.name), info.format);
  }
  EXPECT_EQ(trace_format_names().front().format, TraceFormat::automatic);
  EXPECT_EQ(
      message_of([] { trace_format_by_name("CSV"); }),
      "no trace format \"CSV\"; there are: auto, csv, llmc, jsonl, trainer-state, megatron, tensorboard, wandb-csv, "
      "nvdlfw, torchtitan, hf-console, nemo, deepspeed, nanotron, olmo, llm-foundry, lightning-csv; did you mean "
      "'csv'?");
}

TEST(TraceFormats, UnknownLogsShowTheirFirstLineAndWhatCanBeRead) {
  const auto expect_unknown = [](const std::string& text, const std::string& place, const std::string& shown) {
    const std::string message = error_in(text);
    EXPECT_EQ(message.find("run: " + place + ": not a line of a trace or log that can be read: " + shown), 0U)
        << message;
    for (const TraceFormatInfo& info : trace_format_names().subspan(1)) {
      EXPECT_NE(message.find("\n  " + std::string(info.name) + " "), std::string::npos) << message;
      EXPECT_NE(message.find(std::string(info.help)), std::string::npos) << message;
    }
    EXPECT_NE(message.find("--format"), std::string::npos);
    EXPECT_EQ(message.find("must begin with"), std::string::npos);
    EXPECT_LT(message.size(), 2000U);
  };
  expect_unknown("hello\nworld\n", "line 1", "\"hello\"; nor is any other.");
  expect_unknown("\n \n\x1b[31mworld\x07\n", "line 3", "\"\\u001b[31mworld\\u0007\"");
  expect_unknown("time,a\n1,2\n", "line 1", "\"time,a\"");
  expect_unknown(std::string(5000000, 'x'), "line 1", "\"xxxx");
  expect_unknown(std::string("\0\0\0\0", 4), "line 1", "\"\\u0000");
  EXPECT_EQ(error_in(""), "run: the file is empty");
  EXPECT_EQ(error_in("time,a\n1,2\n", {.format = TraceFormat::csv}),
            "run: line 1, column 1: the header must begin with \"step\", not \"time\"");
}

TEST(TraceFormats, ConsoleLogsMayBeginWithPagesOfOtherText) {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += "setting " + std::to_string(i) + " = some value, or none\n";
  EXPECT_EQ(read_text(text + " iteration 1/ 9 | grad norm: 1.000 |\n").units.front(), "grad norm");
  EXPECT_EQ(read_text(text + "s:1 norm:1\n").units.front(), "norm");
}

TEST(TraceFormats, AVeryLongFirstLineOfJson) {
  std::string text = "{\"step\":1,\"norms\":{";
  for (int i = 0; i < 100000; ++i) text += (i == 0 ? "\"u" : ",\"u") + std::to_string(i) + "\":0.5";
  text += "}}\n";
  std::string second = text;
  second.replace(8, 1, "2");
  const auto trace = read_text(text + second);
  EXPECT_EQ(trace.units.size(), 100000U);
  EXPECT_EQ(trace.rows.size(), 2U);
}

TEST(TraceFormats, AVeryLongHeader) {
  std::string text = "step";
  for (int i = 0; i < 200000; ++i) text += ",layers." + std::to_string(i) + ".q";
  text += "\n1" + std::string(200000, ',') + "\n";
  EXPECT_EQ(read_text(text).units.size(), 200000U);
}

TEST(TraceFormats, ThePageOnLogsNamesEachOne) {
  std::ifstream file(std::string(GNMR_DOCS_DIR) + "/logs.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  for (const TraceFormatInfo& info : trace_format_names()) {
    EXPECT_NE(page.find("| `" + std::string(info.name) + "` |"), std::string::npos) << info.name;
  }
}

TEST(TraceFormats, RecordedFaultRuns) {
  for (const char* kind : {"bad", "clean", "clip", "gover", "over"}) {
    GNMR_NEEDS_DATA(path, "traces/faults/" + std::string(kind) + ".norms.csv");
    const auto trace = testing::read_path(path);
    EXPECT_EQ(trace.units.size(), 40U);
    EXPECT_EQ(trace.rows.size(), 400U);
  }
}

}  // namespace
}  // namespace gnmr::io
