// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/log_nvdlfw.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "io/trace_testing.h"

namespace gnmr::io {
namespace {

using testing::error_in;
using testing::kNan;
using testing::kNone;
using testing::read_text;
using testing::Row;
using Names = std::vector<std::string>;
using Rows = std::vector<Row>;

std::string nvdlfw_line(const std::string& name, int iteration, const std::string& value) {
  char number[16];
  std::snprintf(number, sizeof number, "%06d", iteration);
  return "2026-01-15 23:04:33,107 - INFO - " + name + " \t\t\t\t iteration=" + number + " \t\t\t\t value=" + value +
         "\n";
}

// Gradients are listed from the last layer to the first, as the backward pass meets them.
TEST(NvdlfwLog, NormsOfGradientsInForwardOrder) {
  std::string text = "some other line\n";
  for (const int iteration : {0, 10}) {
    text += nvdlfw_line("m.layers.1.fc1_activation_l2_norm", iteration, "9.0000");
    text += nvdlfw_line("m.layers.2.fc1_dgrad_l2_norm", iteration, "0.2500");
    if (iteration == 0) text += nvdlfw_line("m.layers.2.fc1_wgrad_l2_norm", iteration, "nan");
    text += nvdlfw_line("m.layers.2.fc1_gradient_l1_norm", iteration, "7.0000");
    text += nvdlfw_line("m.layers.1.fc1_gradient_l2_norm", iteration, iteration == 0 ? "0.1250" : "0.0000");
  }
  const auto trace = read_text(text);
  EXPECT_EQ(trace.units,
            (Names{"m.layers.1.fc1_gradient_l2_norm", "m.layers.2.fc1_wgrad_l2_norm", "m.layers.2.fc1_dgrad_l2_norm"}));
  EXPECT_EQ(trace.rows, (Rows{{0, {0.125, kNan, 0.25}}, {10, {0, kNone, 0.25}}}));
  ASSERT_EQ(trace.notes.size(), 1U);
  EXPECT_EQ(trace.notes[0].substr(0, 16), "1 norm read as 0");
}

TEST(NvdlfwLog, Faults) {
  const std::string good = nvdlfw_line("a_wgrad_l2_norm", 5, "1.0000");
  EXPECT_EQ(error_in(good + nvdlfw_line("a_wgrad_l2_norm", 6, "-1.0000")), "run: line 2: the norm -1 is negative");
  EXPECT_EQ(error_in(good + nvdlfw_line("a_wgrad_l2_norm", 6, "x")), "run: line 2: \"x\" is not a number");
  EXPECT_EQ(error_in(good + good).substr(0, 68),
            "run: line 2: step 5 of \"a_wgrad_l2_norm\" does not come after step 5 ");
  EXPECT_EQ(read_text(good + nvdlfw_line("a_wgrad_l2_norm", 5, "2.0000"), {.allow_restart = true}).rows,
            (Rows{{5, {2}}}));
  const std::string torn = nvdlfw_line("a_wgrad_l2_norm", 6, "");
  const auto trace = read_text(good + torn.substr(0, torn.size() - 1));
  EXPECT_EQ(trace.rows, (Rows{{5, {1}}}));
  EXPECT_EQ(trace.notes, (Names{"the last line is cut short and left out"}));
}

TEST(NvdlfwLog, WithoutNormsNamesItsStatistics) {
  EXPECT_EQ(error_in(nvdlfw_line("a_gradient_mse", 0, "1.0") + nvdlfw_line("b_gradient_mse", 0, "1.0") +
                     nvdlfw_line("b_weight_max", 0, "1.0")),
            "run: no gradient norms in this nvdlfw-inspect log; it has: gradient_mse, weight_max");
}

TEST(NvdlfwLog, RealLogWithoutNorms) {
  GNMR_NEEDS_DATA(path, "traces/te_fp8_stats/llama3_nvdlfw_inspect_statistics_logs.log");
  const std::string message = testing::message_of([&] { testing::read_path(path); });
  EXPECT_NE(message.find("no gradient norms in this nvdlfw-inspect log; it has: activation_underflows%"),
            std::string::npos)
      << message;
  const auto trace = testing::read_path(path, {.field_pattern = "*_gradient_underflows%"});
  EXPECT_EQ(trace.units.size(), 2U);
  EXPECT_EQ(trace.rows.size(), 25U);
  EXPECT_EQ(trace.rows.back().step, 240);
}

}  // namespace
}  // namespace gnmr::io
