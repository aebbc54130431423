// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/cell.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>

#include "gnmr/core/error.h"
#include "io/temporary_folder.h"
#include "lab/fake_run.h"

namespace gnmr::lab {
namespace {

class Cell : public ::testing::Test {
 protected:
  test::FakeRun fake(const std::string& controller) {
    test::FakeRun run;
    run.settings.out = folder_.file("run");
    run.settings.steps = 40;
    run.settings.seed = 7;
    run.settings.controller = controller;
    run.settings.options.max_o = 1;
    run.steps_done = 40;
    return run;
  }

  test::TemporaryFolder folder_;
};

TEST_F(Cell, FiguresAreThoseOfTheFiles) {
  test::FakeRun run = fake("gnmr");
  run.burst_step = 30;
  run.settings.experiment.faults = {"overflow"};
  run.fault_last = 32;
  test::write_fake_run(run);
  const std::optional<CellResult> cell = measure_run(folder_.file("run"));
  ASSERT_TRUE(cell.has_value());
  EXPECT_EQ(cell->seed, 7);
  EXPECT_EQ(cell->steps, 40);
  EXPECT_EQ(cell->units, 4);
  EXPECT_DOUBLE_EQ(cell->loss, 2);
  EXPECT_DOUBLE_EQ(*cell->losses.low, 2.5);
  EXPECT_NEAR(cell->losses.train_tail, 5 - 0.01 * (37 + 38 + 39 + 40) / 4.0, 1e-12);
  EXPECT_EQ(cell->skipped_updates, 1);
  EXPECT_NEAR(cell->step_ms, 20.5, 1e-9);
  // Admitted after step 30, so in recovery in steps 31 to 40: ten of forty steps, one unit of four.
  EXPECT_EQ(cell->admissions, 1U);
  EXPECT_NEAR(cell->share_mean, 10.0 / 40 / 4, 1e-12);
  EXPECT_NEAR(cell->share_peak, 0.25, 1e-12);
  EXPECT_NEAR(cell->high.mean, cell->share_mean, 1e-12);
  EXPECT_GT(cell->risks_per_thousand, 0);
  ASSERT_TRUE(cell->detection.has_value());
  EXPECT_EQ(cell->detection->faults, 1U);
  EXPECT_DOUBLE_EQ(cell->detection->recall, 1);
  EXPECT_DOUBLE_EQ(cell->detection->precision, 1);
  EXPECT_DOUBLE_EQ(cell->detection->delay, 0);
}

TEST_F(Cell, WhatWouldHaveBeenAdmittedIsNoRecovery) {
  test::FakeRun run = fake("watch");
  run.burst_step = 30;
  run.settings.experiment.faults = {"overflow"};
  run.fault_last = 32;
  test::write_fake_run(run);
  const std::optional<CellResult> cell = measure_run(folder_.file("run"));
  ASSERT_TRUE(cell.has_value());
  EXPECT_EQ(cell->admissions, 0U);
  EXPECT_EQ(cell->share_mean, 0);
  EXPECT_GT(cell->risks_per_thousand, 0);
  EXPECT_FALSE(cell->detection.has_value());
}

TEST_F(Cell, HarmfulFaultsAndRerunsAreCounted) {
  test::FakeRun run = fake("gnmr");
  run.burst_step = 30;
  run.fault_last = 32;
  run.settings.experiment.faults = {"overflow"};
  run.settings.experiment.harm = true;
  run.harm = {{30, "layers.0.q", 0.4}};  // in recovery from step 31 on
  run.trials = {{.step = 30, .verdict = "numeric", .seconds = 0.02},
                {.step = 33, .verdict = "common", .seconds = 0.01},
                {.step = 34, .verdict = "none", .seconds = 0.01, .rerun = "replay"}};
  test::write_fake_run(run);
  const std::optional<CellResult> cell = measure_run(folder_.file("run"));
  ASSERT_TRUE(cell && cell->harm && cell->reruns && cell->detection);
  EXPECT_EQ(cell->harm->harmful, 1U);
  EXPECT_EQ(cell->harm->met, 1U);
  EXPECT_EQ(cell->harm->covered, 0U);
  EXPECT_DOUBLE_EQ(cell->harm->recall(), 1);
  EXPECT_EQ(cell->reruns->trials(), 2U);
  EXPECT_EQ(cell->reruns->numeric, 1U);
  EXPECT_EQ(cell->reruns->common, 1U);
  EXPECT_EQ(cell->reruns->replays, 1U);
  // A step takes as many milliseconds as its number; step 30, beside which harm was measured, does not count.
  EXPECT_NEAR(cell->step_ms, 20, 1e-9);
  EXPECT_NEAR(cell->reruns->time_share, 0.04 / (0.04 + 40 * 0.02), 1e-12);
  EXPECT_NEAR(cell->step_ms_with_reruns(), 20 + 1, 1e-9);
  EXPECT_EQ(cell->detection->largest_delay, 0);
  EXPECT_EQ(cell->detection->outside, 0U);
  EXPECT_EQ(write_cell(parse_cell(write_cell(*cell), "cell")), write_cell(*cell));
}

TEST_F(Cell, AnOracleSwitchesWhateverTheJournalSays) {
  test::FakeRun run = fake("gnmr");
  run.burst_step = 30;
  run.fault_last = 32;
  run.settings.experiment.faults = {"overflow"};
  run.settings.experiment.harm = true;
  run.settings.experiment.oracle = true;
  test::write_fake_run(run);
  const std::optional<CellResult> cell = measure_run(folder_.file("run"));
  ASSERT_TRUE(cell && cell->harm);
  EXPECT_EQ(cell->admissions, 0U);
  EXPECT_FALSE(cell->detection || cell->reruns);
  EXPECT_EQ(cell->harm->covered, 1U);
  EXPECT_DOUBLE_EQ(cell->harm->recall(), 1);
}

TEST_F(Cell, SharesOfHighPrecisionAddUp) {
  test::FakeRun run = fake("gnmr");
  run.burst_step = 30;
  run.says_why_high = true;
  run.trials = {{.step = 30, .verdict = "numeric"}};
  test::write_fake_run(run);
  const std::optional<CellResult> cell = measure_run(folder_.file("run"));
  ASSERT_TRUE(cell && cell->high.shares);
  // In recovery in steps 31 to 40; step 30 ran again with all four units high.
  EXPECT_NEAR(cell->high.shares->acute, 10.0 / 160, 1e-12);
  EXPECT_EQ(cell->high.shares->standing, 0);
  EXPECT_NEAR(cell->high.shares->reruns, 4.0 / 160, 1e-12);
  EXPECT_NEAR(cell->high.shares->acute + cell->high.shares->standing, cell->share_mean, 1e-12);
  const CellResult read = parse_cell(write_cell(*cell), "cell");
  EXPECT_EQ(read.high.shares, cell->high.shares);
  EXPECT_NEAR(*read.high.total, 14.0 / 160, 1e-12);
  EXPECT_NEAR(*read.high.cost, 0.5, 1e-12);
  EXPECT_DOUBLE_EQ(*read.losses.trained, 2.25);
}

TEST_F(Cell, ItSaysWhatTheRunWasMadeWith) {
  test::FakeRun run = fake("gnmr");
  run.settings.options.lag = 1;
  run.settings.patrol = 0.25;
  test::write_fake_run(run);
  const std::optional<CellResult> cell = measure_run(folder_.file("run"));
  ASSERT_TRUE(cell);
  const RunOrigin expected{
      .commit = "abc-dirty", .torch = "2.13.0", .device = "cpu", .threads = 3, .lag = 1, .patrol = 0.25};
  EXPECT_EQ(cell->origin, expected);
  EXPECT_EQ(parse_cell(write_cell(*cell), "cell").origin, expected);
  EXPECT_FALSE(cell->rule_share) << "no rival";
}

TEST_F(Cell, SharesAreUnknownWhereTheFilesDoNotSay) {
  test::write_fake_run(fake("gnmr"));
  const std::optional<CellResult> cell = measure_run(folder_.file("run"));
  ASSERT_TRUE(cell);
  EXPECT_FALSE(cell->high.shares) << "metrics of an earlier version";
  EXPECT_FALSE(cell->high.total || cell->high.cost || cell->losses.trained);
  EXPECT_EQ(write_cell(*cell).find("high_shares"), std::string::npos);
}

TEST_F(Cell, FilesOfBeforeAreRead) {
  const CellResult cell = parse_cell(
      R"({"version":1,"arm":"gnmr","seed":0,"run":"runs/gnmr-seed0","finished":true,"steps":400,"units":28,"loss":1.7,
          "train_loss_tail":1.8,"share_mean":0.05,"share_peak":0.1,"high_mean":0.05,"risks_per_thousand":4,
          "admissions":30,"skipped_updates":0,"step_ms":70,"faults":28,"recall":0.8,"precision":0.4,"delay":0.5})",
      "cell");
  ASSERT_TRUE(cell.detection.has_value());
  EXPECT_EQ(cell.detection->faults, 28U);
  EXPECT_FALSE(cell.detection->largest_delay || cell.harm || cell.reruns || cell.high.shares);
  EXPECT_DOUBLE_EQ(cell.step_ms_with_reruns(), 70);
}

TEST_F(Cell, WithoutARecipeEverythingRunsHighAndThereIsNoLowLoss) {
  test::FakeRun run = fake("watch");
  run.settings.recipe = "none";
  test::write_fake_run(run);
  const std::optional<CellResult> cell = measure_run(folder_.file("run"));
  ASSERT_TRUE(cell.has_value());
  EXPECT_EQ(cell->high.mean, 1);
  EXPECT_FALSE(cell->losses.low.has_value());
}

TEST_F(Cell, ARunThatIsNotOverHasNoResult) {
  EXPECT_FALSE(measure_run(folder_.file("run")).has_value());
  test::FakeRun run = fake("gnmr");
  run.steps_done = 39;
  test::write_fake_run(run);
  EXPECT_FALSE(measure_run(folder_.file("run")).has_value());
}

TEST_F(Cell, ARunWhoseLastBatchWasHeldEndsWithItsRerun) {
  test::FakeRun run = fake("gnmr");
  run.steps_done = 39;
  run.settings.options.lag = 1;
  test::write_fake_run(run);
  const auto add = [&](const auto& line) {
    std::string text;
    run::append_line(text, line);
    std::ofstream(folder_.file("run/metrics.jsonl"), std::ios::app) << text;
  };
  add(run::EvalLine{.step = 39, .loss_high = 3});
  add(run::TrainLine{.step = 40, .applied = false});
  EXPECT_FALSE(measure_run(folder_.file("run"))) << "batch 40 was held";
  add(run::TrainLine{.step = 42, .batch = 40});
  EXPECT_FALSE(measure_run(folder_.file("run"))) << "not evaluated yet";
  add(run::EvalLine{.step = 42, .loss_high = 2});
  const std::optional<CellResult> cell = measure_run(folder_.file("run"));
  ASSERT_TRUE(cell);
  EXPECT_EQ(cell->loss, 2);
  EXPECT_EQ(cell->steps, 40);
}

TEST_F(Cell, ALossThatIsNotFiniteStaysOne) {
  test::FakeRun run = fake("gnmr");
  run.loss = std::numeric_limits<double>::quiet_NaN();
  test::write_fake_run(run);
  const std::optional<CellResult> cell = measure_run(folder_.file("run"));
  ASSERT_TRUE(cell.has_value());
  EXPECT_TRUE(cell->diverged());
  EXPECT_TRUE(parse_cell(write_cell(*cell), "cell").diverged());
}

TEST_F(Cell, DamageIsAnErrorThatNamesTheFile) {
  test::write_fake_run(fake("gnmr"));
  test::put_file(folder_.file("run/metrics.jsonl"), "{\"kind\":\"train\"}\n{}\n");
  EXPECT_NE(test::error_of<Error>([&] { measure_run(folder_.file("run")); }).find("metrics.jsonl"), std::string::npos);
}

TEST_F(Cell, AResultReadsBackAsItWasWritten) {
  CellResult cell{.arm = "gnmr",
                  .seed = -3,
                  .run = "runs/gnmr-seed-3",
                  .steps = 9,
                  .loss = 1.25,
                  .losses = {.low = std::numeric_limits<double>::infinity(), .trained = 1.375, .train_tail = 1.5},
                  .share_mean = 0.1,
                  .share_peak = 0.2,
                  .high = {.mean = 0.3, .total = 0.35, .cost = 0.4},
                  .risks_per_thousand = 4.5,
                  .admissions = 6,
                  .skipped_updates = 2,
                  .step_ms = 70.5,
                  .units = 28,
                  .detection = Detection{.faults = 4, .recall = 0.5, .precision = std::nan(""), .delay = 1.5},
                  .rule_share = 0.04,
                  .origin = {.commit = "abc",
                             .torch = "2.13.0",
                             .device = "cpu",
                             .threads = 1,
                             .lag = 1,
                             .patrol = 0.05,
                             .data = "9 bytes"},
                  .note = "a note"};
  const std::string text = write_cell(cell);
  EXPECT_EQ(write_cell(parse_cell(text, "cell")), text);
  EXPECT_NE(text.find("\"finished\": true"), std::string::npos);
  EXPECT_NE(test::error_of<Error>([] { parse_cell("{\"version\":2}", "some/cell.json"); }).find("some/cell.json"),
            std::string::npos);
  EXPECT_THROW(parse_cell("{\"version\":1}", "cell"), Error);
}

}  // namespace
}  // namespace gnmr::lab
