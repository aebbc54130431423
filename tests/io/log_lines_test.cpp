// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/log_lines.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

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

TEST(LlmcLog, ShortForm) {
  const auto trace = read_text(
      "s:0 tel:11.0092\ns:0 trl:11.0091 lr:0.000001 norm:15.37\ns:1 trl:nan lr:0.000002 norm:nan\n"
      "s:1 eval:0.2451\ns:2 trl:9.1 lr:0.000003 norm:inf\n");
  EXPECT_EQ(trace.units, (Names{"norm"}));
  EXPECT_EQ(trace.rows, (Rows{{0, {15.37}}, {1, {kNan}}, {2, {kInf}}}));
  EXPECT_TRUE(trace.notes.empty());
}

TEST(LlmcLog, TableForm) {
  const auto trace = read_text(
      "| num_layers L          | 12    |\nval loss 11.009\n"
      "step    1/19560 | loss 11.009 (+nanz)| norm 15.3705 (+nanz)| lr 8.57e-07 | 3914.05 ms | 133950 tok/s\n"
      "HellaSwag: 2515/10042 = 0.250448\n"
      "step    2/19560 | train loss 10.9 | norm 1.5e+01 | lr 8.57e-07 | (3852.53 ms | 136089 tok/s)\n"
      "step    3/19560 | loss     nan (+nanz)| norm    nan (slurmstepd: error: *** JOB CANCELLED ***\n");
  EXPECT_EQ(trace.rows, (Rows{{1, {15.3705}}, {2, {15}}, {3, {kNan}}}));
}

TEST(LlmcLog, LinesCutShortAreCounted) {
  const auto trace = read_text(
      "step 1/9 | loss 1 (+nanz)| norm 2.5 (+nanz)|\nstep 2/9 | loss 1 (+nanz)| norm 2.\n"
      "step 3/9 | loss 1 (+nanz)| norm \n");
  EXPECT_EQ(trace.rows, (Rows{{1, {2.5}}}));
  EXPECT_EQ(trace.notes, (Names{"2 lines cut short left out"}));
}

TEST(LlmcLog, WithoutNormsNamesWhatItHas) {
  EXPECT_EQ(error_in("s:0 tel:11.0\ns:0 trl:11.0 lr:0.1\n"),
            "run: no gradient norms in this llm.c log; it has: tel, trl, lr");
  EXPECT_EQ(error_in("step 1/9 | loss 1 (+nanz)| lr 2e-3 | 5 ms\n"),
            "run: no gradient norms in this llm.c log; it has: loss, lr");
}

TEST(LlmcLog, NegativeNormsAndStepsThatGoBack) {
  EXPECT_EQ(error_in("s:1 norm:1\n\ns:2 norm:-1\n"), "run: line 3: the norm -1 is negative");
  EXPECT_EQ(error_in("s:1 norm:1\ns:1 tel:2\ns:1 norm:2\n").substr(0, 47),
            "run: line 3: step 1 does not come after step 1 ");
  const auto trace = read_text("s:1 norm:1\ns:2 norm:2\ns:3 norm:3\ns:2 norm:4\n", {.allow_restart = true});
  EXPECT_EQ(trace.rows, (Rows{{1, {1}}, {2, {4}}}));
}

// The manifest of the data: 19,560 steps; the largest norm after the start is 2.02, at step 9025.
TEST(LlmcLog, RealRun) {
  GNMR_NEEDS_DATA(path, "traces/llmc_gpt2_124M/karpathy_main.log");
  const auto trace = testing::read_path(path);
  ASSERT_EQ(trace.rows.size(), 19560U);
  double largest = 0;
  std::int64_t at = 0;
  for (const Row& row : trace.rows) {
    if (row.step < 1000 || *row.cells[0].norm <= largest) continue;
    largest = *row.cells[0].norm;
    at = row.step;
  }
  EXPECT_EQ(largest, 2.02);
  EXPECT_EQ(at, 9025);
  std::ifstream file(path);
  std::size_t row = 0;
  for (std::string line; std::getline(file, line);) {
    long long step = 0;
    double norm = 0;
    if (std::sscanf(line.c_str(), "s:%lld trl:%*f lr:%*f norm:%lf", &step, &norm) != 2) continue;
    ASSERT_LT(row, trace.rows.size());
    EXPECT_EQ(trace.rows[row], (Row{step, {norm}}));
    ++row;
  }
  EXPECT_EQ(row, trace.rows.size());
}

TEST(LlmcLog, RealRunThatIsNanFromStepOne) {
  GNMR_NEEDS_DATA(path, "traces/llmc_gpt2_124M/hector_gpt2_train.11679031.log.gz");
  const auto trace = testing::read_path(path);
  ASSERT_EQ(trace.rows.size(), 16256U);
  for (std::size_t i = 0; i < trace.rows.size(); ++i) {
    EXPECT_EQ(trace.rows[i], (Row{static_cast<std::int64_t>(i) + 1, {kNan}}));
  }
}

constexpr const char* kMegatronText =
    "using world size: 8\n"
    " [2026-05-28 22:26:20.104233] iteration       10/    6069 | consumed samples:        14848 | elapsed time per "
    "iteration (ms): 26813.0 | learning rate: 0.000000E+00 | global batch size:   512 | loss scale: 4294967296.0 | "
    "number of skipped iterations:  10 | number of nan iterations:   0 |\n"
    " iteration       20/    6069 | consumed samples:        15360 | elapsed time per iteration (ms): 29511.9 | "
    "learning rate: 6.000000E-05 | global batch size:   512 | lm loss: 8.535482E-01 | loss scale: 1.0 | "
    "grad norm: 1.366 | num zeros: 12 | params norm: 311.270 | number of skipped iterations:   0 | number of nan "
    "iterations:   0 |\n"
    "validation loss at iteration 20 | lm loss value: 1.0E+00 | lm loss PPL: 2.7E+00 |\n"
    "7: [default7]: iteration       30/    6069 | lm loss: 8.5E-01 | loss scale: 1.0 | grad norm: nan | number of "
    "skipped iterations:   0 | number of nan iterations:   0 |\n"
    " iteration       40/    6069 | lm loss: 8.5E-01 | loss scale: 1.0 | number of skipped iterations:   1 | number of "
    "nan iterations:   0 | samples per second: 6.063\n"
    " iteration       50/    6069 | lm loss: 8.5E-01 | loss scale: 1.0 | grad norm: 0.12";

TEST(MegatronLog, IterationsSkippedIterationsAndATornEnd) {
  const auto trace = read_text(kMegatronText);
  EXPECT_EQ(trace.units, (Names{"grad norm"}));
  EXPECT_EQ(trace.rows, (Rows{{10, {kNone}}, {20, {1.366}}, {30, {kNan}}, {40, {kNone}}}));
  EXPECT_EQ(trace.notes, (Names{"2 rows had no gradient norm", "1 line cut short left out"}));
}

TEST(MegatronLog, WithoutNormsNamesWhatItHas) {
  EXPECT_EQ(error_in(" iteration 1/ 9 | lm loss: 8.5E-01 | loss scale: 1.0 | number of skipped iterations:   0 |\n"),
            "run: no gradient norms in this Megatron log; it has: lm loss, loss scale, number of skipped iterations");
}

TEST(MegatronLog, ResumedRun) {
  const std::string text =
      " iteration 1/ 9 | grad norm: 1.000 |\n iteration 2/ 9 | grad norm: 2.000 |\n"
      " iteration 2/ 9 | grad norm: 3.000 |\n";
  EXPECT_EQ(error_in(text).substr(0, 47), "run: line 3: step 2 does not come after step 2 ");
  EXPECT_EQ(read_text(text, {.allow_restart = true}).rows, (Rows{{1, {1}}, {2, {3}}}));
}

TEST(ConsoleLogs, HaveNoFieldsToChoose) {
  EXPECT_EQ(error_in(kMegatronText, {.field_pattern = "loss"}),
            "run: a field pattern is for logs that name their fields, not for megatron");
}

}  // namespace
}  // namespace gnmr::io
