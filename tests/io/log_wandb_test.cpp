// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/log_wandb.h"

#include <gtest/gtest.h>

#include "io/temporary_folder.h"
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

const std::string kChart =
    "\"Step\",\"run-1 - grad_norm\",\"run-1 - grad_norm__MIN\",\"run-1 - grad_norm__MAX\","
    "\"grad_norm-try - loss\",\"run-2 - train/grad_norm\",\"run-2 - train/grad_norm__MIN\"\n"
    "\"1\",\"0.5\",\"0.4\",\"0.6\",\"3\",\"\",\"\"\n"
    "2,NaN,,,3,Infinity,\n"
    "3,,,,3,,\n"
    "4,,,,3,0.25,0.25\n";

TEST(WandbCsv, SeveralRunsAreNotUnitsOfOneModel) {
  const auto first = read_text(kChart, {.run = "run-1"});
  EXPECT_EQ(first.units, (Names{"grad_norm"}));
  EXPECT_EQ(first.rows, (Rows{{1, {0.5}}, {2, {kNan}}}));
  EXPECT_EQ(first.notes, (Names{"2 rows had no gradient norm"}));
  const auto second = read_text(kChart, {.run = "run-2"});
  EXPECT_EQ(second.units, (Names{"train/grad_norm"}));
  EXPECT_EQ(second.rows, (Rows{{2, {kInf}}, {4, {0.25}}}));
  EXPECT_EQ(error_in(kChart), "run: has 2 runs, name one with --run: run-1, run-2");
  EXPECT_EQ(error_in(kChart, {.run = "run1"}),
            "run: no run \"run1\" with gradient norms; there are: run-1, run-2; did you mean 'run-1'?");
  EXPECT_EQ(read_text(kChart, {.field_pattern = "run-2 - *grad*"}).units, (Names{"train/grad_norm"}));
}

TEST(WandbCsv, RunsAreListed) {
  const test::TemporaryFolder folder;
  const auto runs_in = [&](const std::string& text) {
    test::put_file(folder.file("export.csv"), text);
    return runs_of_trace(folder.file("export.csv"));
  };
  EXPECT_EQ(runs_in(kChart), (Names{"run-1", "run-2"}));
  EXPECT_EQ(runs_in("Step,r - a.grad_norm,r - b.grad_norm\n1,2,3\n"), (Names{"r"}));
  EXPECT_EQ(runs_in("step,r - a.grad_norm,s - b.grad_norm\n1,2,3\n"), Names());
  // A history is one run, whatever its metrics are called.
  EXPECT_EQ(read_text("_step,Train - grad_norm,Other - grad_norm\n1,2,3\n").units,
            (Names{"Train - grad_norm", "Other - grad_norm"}));
  EXPECT_EQ(error_in("step,a\n1,2\n", {.run = "a"}).find("run: is one run, so --run cannot choose"), 0U);
}

TEST(WandbCsv, OtherAxesAndHistories) {
  EXPECT_EQ(read_text("\"train/global_step\",\"r - grad_norm\"\n10.0,1\n").rows, (Rows{{10, {1}}}));
  EXPECT_EQ(read_text(",_runtime,_step,train/grad_norm\n0,5.5,7,1\n1,6.5,8,\n").rows, (Rows{{7, {1}}}));
  EXPECT_EQ(read_text("tokens,r - grad_norm,r - grad_norm__MIN,r - grad_norm__MAX\n4096,1,1,1\n").rows,
            (Rows{{4096, {1}}}));
  EXPECT_EQ(read_text("a,b,r - grad_norm\n1,2,3\n", {.format = TraceFormat::wandb_csv, .step_field = "b"}).rows,
            (Rows{{2, {3}}}));
}

TEST(WandbCsv, OurOwnCsvIsNotMistakenForIt) {
  EXPECT_EQ(read_text("step,loss,grad\n1,2,3\n").units, (Names{"loss", "grad"}));
  EXPECT_EQ(read_text("step,a__MIN,b__MAX\n1,2,3\n").units, (Names{"a__MIN", "b__MAX"}));
}

TEST(WandbCsv, Faults) {
  const std::string header = "Step,r - loss,r - grad_norm\n";
  EXPECT_EQ(error_in("Step,r - loss,r - lr\n1,2,3\n"),
            "run: no gradient norms in this export of Weights & Biases; it has: Step, r - loss, r - lr");
  EXPECT_EQ(error_in("Step,grad_norm,grad_norm\n"), "run: line 1, column 3: the name \"grad_norm\" is there twice");
  EXPECT_EQ(error_in(header + "1,2\n"), "run: line 2, column 2: the row has 2 cells, the header 3");
  EXPECT_EQ(error_in(header + "1,2,x\n"), "run: line 2, column 3: \"x\" is not a number");
  EXPECT_EQ(error_in(header + "1,x,-1\n"), "run: line 2, column 3: the norm -1 is negative");
  EXPECT_EQ(error_in(header + "1.5,2,1\n"), "run: line 2, column 1: \"1.5\" is not a step, a whole number");
  EXPECT_EQ(error_in(header + "2,,1\n1,,1\n").substr(0, 57),
            "run: line 3, column 1: step 1 does not come after step 2 ");
  EXPECT_EQ(read_text(header + "2,,1\n1,,3\n", {.allow_restart = true}).rows, (Rows{{1, {3}}}));
}

}  // namespace
}  // namespace gnmr::io
