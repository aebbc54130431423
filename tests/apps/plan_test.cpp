// SPDX-License-Identifier: Apache-2.0
// `gnmr plan` as a user runs it, on the state of a controller (runs: apps/train/train_command_test.cpp).
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "apps/program_run.h"
#include "gnmr/core/controller.h"
#include "gnmr/io/state_file.h"

namespace gnmr {
namespace {

using testing::has;
using testing::ProgramRun;
using testing::run_gnmr;
using testing::Scratch;

class PlanCommand : public ::testing::Test {
 protected:
  PlanCommand() {
    std::vector<Unit> units;
    for (const char* name : {"a.q", "a.up", "a.down", "b.q", "b.up", "b.down"}) units.push_back({.name = name});
    Options options;
    options.max_o = 2;
    Controller controller(units, options, {.can_rerun = false, .sites = 3});
    const std::vector<double> norms(units.size(), 1.0);
    std::vector<double> errors;
    for (const double error : {0.05, 0.06, 0.4, 0.05, 0.06, 0.5}) errors.insert(errors.end(), 3, error);
    for (int step = 1; step <= 60; ++step) {
      controller.begin(step);
      controller.report({.step = step, .norms = norms, .errors = errors});
    }
    io::save_state(state_, controller.save());
  }
  Scratch files_;
  std::string state_ = files_.path("run.gnmr");
};

TEST_F(PlanCommand, PrintsATableFlagsOrAFilter) {
  const ProgramRun table = run_gnmr("plan " + state_);
  EXPECT_EQ(table.status, 0) << table.err;
  EXPECT_TRUE(has(table.out, "weight_gradient") && has(table.out, "2 units of 6 high")) << table.out;
  EXPECT_TRUE(has(table.err, "a state has no costs of units")) << table.err;
  EXPECT_EQ(run_gnmr("plan " + state_ + " --flags").out, "--always-high a.down b.down\n");
  EXPECT_EQ(run_gnmr("plan " + state_ + " --flags --max-o 1").out, "--always-high b.down\n");
  EXPECT_EQ(run_gnmr("plan " + state_ + " --flags --coarse-error 0.45 --coarse-fill 0").out, "--always-high b.down\n");
  EXPECT_EQ(run_gnmr("plan " + state_ + " --flags --coarse-error 0.45").out, "--always-high a.down b.down\n");
  EXPECT_TRUE(has(run_gnmr("plan " + state_ + " --coarse-error 0.45").out, "high (fills)"));
  EXPECT_TRUE(has(run_gnmr("plan " + state_ + " --torchao").out, "\"a.down\",\n"));
  EXPECT_TRUE(has(run_gnmr("plan " + state_ + " --json").out, R"("high":["a.down","b.down"])"));
}

TEST_F(PlanCommand, SaysWhatIsMissing) {
  EXPECT_EQ(run_gnmr("plan").status, 2);
  EXPECT_EQ(run_gnmr("plan " + state_ + " --json --flags").status, 2);
  EXPECT_EQ(run_gnmr("plan " + files_.path("nowhere")).status, 3);
  EXPECT_EQ(run_gnmr("plan " + state_ + " --coarse-error 0").status, 3);
  EXPECT_TRUE(has(run_gnmr("plan " + state_ + " --check").err, "needs the folder of a run"));
  EXPECT_EQ(run_gnmr("plan " + state_ + " --check --flags").status, 2);
  EXPECT_EQ(run_gnmr("plan " + state_ + " --seeds 1").status, 2);  // of a check
  const ProgramRun empty = run_gnmr("plan " + files_.path(""));
  EXPECT_EQ(empty.status, 3);
  EXPECT_TRUE(has(empty.err, "there is no checkpoint yet")) << empty.err;
}

TEST_F(PlanCommand, HelpTeaches) {
  const ProgramRun help = run_gnmr("plan --help");
  EXPECT_EQ(help.status, 0);
  for (const char* const text : {"--flags", "--torchao", "--check", "convert_to_float8_training", "Exit status"}) {
    EXPECT_TRUE(has(help.out, text)) << text;
  }
}

}  // namespace
}  // namespace gnmr
