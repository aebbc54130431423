// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/log_trainer_state.h"

#include <gtest/gtest.h>

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

// Laid out as json.dumps(state, indent=2, sort_keys=True) does.
constexpr const char* kState = R"({
  "best_metric": null,
  "epoch": 2.0,
  "global_step": 30,
  "log_history": [
    {
      "epoch": 0.5,
      "grad_norm": 1.25,
      "learning_rate": 5e-05,
      "loss": 2.5,
      "step": 10
    },
    {
      "epoch": 1.0,
      "eval_loss": 2.25,
      "step": 10
    },
    {
      "epoch": 1.5,
      "grad_norm": NaN,
      "grad_norm/layers.0": 0.5,
      "loss": 0.0,
      "step": 20
    },
    {
      "epoch": 2.0,
      "step": 20,
      "total_flos": 1.0e+15,
      "train_runtime": 12.5
    }
  ],
  "max_steps": 30,
  "stateful_callbacks": {"TrainerControl": {"args": {"should_log": false}}}
}
)";

TEST(TrainerState, LogHistory) {
  const auto trace = read_text(kState);
  EXPECT_EQ(trace.units, (Names{"grad_norm", "grad_norm/layers.0"}));
  EXPECT_EQ(trace.rows, (Rows{{10, {1.25, kNone}}, {20, {kNan, 0.5}}}));
}

TEST(TrainerState, OnOneLine) {
  const std::string text = R"({"log_history":[{"grad_norm":2,"step":1,"nested":{"step":9}}],"global_step":1})";
  EXPECT_EQ(read_text(text).rows, (Rows{{1, {2}}}));
  EXPECT_EQ(read_text("\xEF\xBB\xBF" + text, {.format = TraceFormat::trainer_state}).rows, (Rows{{1, {2}}}));
}

TEST(TrainerState, PatternChoosesOtherFields) {
  EXPECT_EQ(read_text(kState, {.field_pattern = "loss"}).rows, (Rows{{10, {2.5}}, {20, {0}}}));
}

TEST(TrainerState, Faults) {
  EXPECT_EQ(error_in("{\n \"log_history\": [\n {\"step\": 1,, }]}"),
            "run: line 3: not JSON: a name in quotes is missing");
  EXPECT_EQ(error_in("{\n\"log_history\":[{\"step\":1,\"loss\":2}]}"),
            "run: no gradient norms in this trainer_state.json; it has: step, loss");
  EXPECT_EQ(error_in("{\n\"global_step\":1,\"x\":{\"y\":1}}"),
            "run: no gradient norms in this JSON document; it has: global_step, x");
  EXPECT_EQ(error_in("{\n\"log_history\":[{\"grad_norm\":1}]}"),
            "run: log_history[0]: has a gradient norm and no step");
  EXPECT_EQ(error_in("{\n\"log_history\":[{\"step\":0.5}]}"),
            "run: log_history[0]: the step \"0.5\" is not a whole number");
  EXPECT_EQ(error_in("{\n\"log_history\":[{\"step\":1,\"grad_norm\":-1}]}"),
            "run: log_history[0]: the norm -1 is negative");
}

TEST(TrainerState, ResumedRun) {
  const std::string text =
      "{\n\"log_history\":[{\"step\":1,\"grad_norm\":1},{\"step\":2,\"grad_norm\":2},"
      "{\"step\":2,\"grad_norm\":3}]}";
  EXPECT_EQ(error_in(text).substr(0, 70), "run: log_history[2]: step 2 of \"grad_norm\" does not come after step 2 ");
  const auto trace = read_text(text, {.allow_restart = true});
  EXPECT_EQ(trace.rows, (Rows{{1, {1}}, {2, {3}}}));
  EXPECT_EQ(trace.notes, (Names{"1 value dropped: the run was resumed from an earlier step"}));
}

}  // namespace
}  // namespace gnmr::io
