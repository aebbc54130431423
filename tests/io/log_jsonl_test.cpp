// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/log_jsonl.h"

#include <gtest/gtest.h>

#include "io/trace_testing.h"

namespace gnmr::io {
namespace {

using testing::error_in;
using testing::kInf;
using testing::kNan;
using testing::kNone;
using testing::read_text;
using testing::Row;
using Names = std::vector<std::string>;
using Rows = std::vector<Row>;

TEST(JsonLines, FieldsThatFitAreUnits) {
  const auto trace = read_text(
      "{\"step\": 1, \"loss\": 2.5, \"grad_norm\": 0.5, \"max_grad_norm\": 1.0, \"grad_norm_clipped\": 0.4}\n"
      "\n"
      "{\"step\": 2, \"eval_loss\": 2.5}\n"
      "{\"step\": 3, \"grad_norm\": NaN, \"norms\": {\"layers.0\": {\"q\": 1e-3}, \"b\": \"inf\"}}\n"
      "{\"step\": 4.0, \"norms\": {\"b\": null, \"layers.0\": {\"q\": \"NaN\"}}, \"grad_norm\": Infinity}\n");
  EXPECT_EQ(trace.units, (Names{"grad_norm", "norms.layers.0.q", "norms.b"}));
  EXPECT_EQ(trace.rows, (Rows{{1, {0.5, kNone, kNone}}, {3, {kNan, 1e-3, kInf}}, {4, {kInf, kNan, kNone}}}));
  EXPECT_EQ(trace.notes, (Names{"1 line had no gradient norm"}));
}

TEST(JsonLines, PatternAndStepField) {
  const std::string text = "{\"n\": 7, \"step\": 1, \"GN/a\": 1, \"GN/b\": 2, \"GN/skip\": 3, \"grad_norm\": 4}\n";
  const auto trace = read_text(text, {.field_pattern = "gn/*,!*skip", .step_field = "n"});
  EXPECT_EQ(trace.units, (Names{"GN/a", "GN/b"}));
  EXPECT_EQ(trace.rows, (Rows{{7, {1, 2}}}));
  EXPECT_EQ(
      error_in(text, {.field_pattern = "x?y"}),
      "run: no number in this JSON Lines log fits the field pattern \"x?y\"; it has: n, step, GN/a, GN/b, GN/skip, "
      "grad_norm");
  EXPECT_EQ(error_in(text, {.field_pattern = "!*"}), "the field pattern \"!*\" can fit no field");
}

TEST(JsonLines, UsualNamesOfTheStep) {
  for (const char* name : {"step", "global_step", "_step", "iteration", "iter", "train/global_step"}) {
    const auto trace = read_text("{\"grad_norm\":1,\"" + std::string(name) + "\":5}\n");
    EXPECT_EQ(trace.rows, (Rows{{5, {1}}}));
  }
  EXPECT_EQ(read_text("{\"iter\":1,\"step\":2,\"grad_norm\":1}\n").rows, (Rows{{2, {1}}}));
  EXPECT_EQ(error_in("{\"epoch\":1,\"grad_norm\":1}\n").substr(0, 54),
            "run: line 1: no step in this line; looked for: step, g");
}

// A field may come as null, or at another place in the line, before it is known to be a unit.
TEST(JsonLines, UnitsThatShowLate) {
  const auto trace = read_text(
      "{\"grad_norm\":null,\"step\":1,\"grad_norm_b\":1}\n{\"step\":2,\"grad_norm\":3}\n"
      "{\"grad_norm\":4,\"step\":3,\"grad_norm_b\":null}\n");
  EXPECT_EQ(trace.units, (Names{"grad_norm_b", "grad_norm"}));
  EXPECT_EQ(trace.rows, (Rows{{1, {1, kNone}}, {2, {kNone, 3}}, {3, {kNone, 4}}}));
}

TEST(JsonLines, FaultsNameTheLine) {
  const std::string good = "{\"step\":1,\"grad_norm\":1}\n";
  EXPECT_EQ(error_in(good + "oops\n" + good), "run: line 2: not JSON: not a value");
  EXPECT_EQ(error_in(good + "{\"step\":2,\"grad_norm\":-1}\n"),
            "run: line 2: the norm \"-1\" of \"grad_norm\" is negative");
  EXPECT_EQ(error_in(good + "{\"step\":2,\"grad_norm\":\"x\"}\n"),
            "run: line 2: the field \"grad_norm\" is \"x\", not a number");
  EXPECT_EQ(error_in(good + "{\"step\":2,\"grad_norm\":true}\n"),
            "run: line 2: the field \"grad_norm\" is a truth value, not a number");
  EXPECT_EQ(error_in(good + "{\"step\":2.5,\"grad_norm\":1}\n"), "run: line 2: the step \"2.5\" is not a whole number");
  EXPECT_EQ(error_in(good + "\n" + good).substr(0, 47), "run: line 3: step 1 does not come after step 1 ");
  EXPECT_EQ(error_in("{\"step\":1,\"loss\":{\"lm\":1}}\n"),
            "run: no gradient norms in this JSON Lines log; it has: step, loss");
}

TEST(JsonLines, ATornLastLineIsLeftOut) {
  const auto trace = read_text("{\"step\":1,\"grad_norm\":1}\n{\"step\":2,\"grad_n");
  EXPECT_EQ(trace.rows, (Rows{{1, {1}}}));
  EXPECT_EQ(trace.notes, (Names{"the last line is cut short and left out"}));
}

TEST(JsonLines, ResumedRun) {
  const auto trace =
      read_text("{\"step\":1,\"grad_norm\":1}\n{\"step\":2,\"grad_norm\":2}\n{\"step\":2,\"grad_norm\":3}\n",
                {.allow_restart = true});
  EXPECT_EQ(trace.rows, (Rows{{1, {1}}, {2, {3}}}));
}

TEST(JsonLines, RealDocumentWithoutNormsNamesWhatItHas) {
  const std::string name = "mixtral__mixtral_8x7b_alltoall_tp2pp4ep4_release__golden_values_dev_dgx_h100.json";
  GNMR_NEEDS_DATA(path, "traces/megatron/" + name);
  for (const TraceFormat format : {TraceFormat::automatic, TraceFormat::trainer_state}) {
    const std::string message = testing::message_of([&] { testing::read_path(path, {.format = format}); });
    EXPECT_NE(message.find("no gradient norms"), std::string::npos) << message;
    EXPECT_NE(message.find("it has: lm loss, num-zeros, mem-allocated-bytes"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace gnmr::io
