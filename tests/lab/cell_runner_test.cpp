// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/cell_runner.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <set>

#include "io/temporary_folder.h"
#include "lab/fake_run.h"

namespace gnmr::lab {
namespace {

using Texts = std::vector<std::string>;

/// Notes what it is told; stops when asked to.
class Watcher : public SuiteObserver {
 public:
  void started(std::size_t cell, bool resumed) override {
    started_.push_back(cell);
    if (resumed) resumed_.insert(cell);
  }
  void ended(std::size_t, const CellStatus&) override {}
  void looked(std::span<const CellStatus> cells) override {
    std::size_t running = 0;
    for (const CellStatus& cell : cells) running += cell.state == CellState::running ? 1 : 0;
    most_running_ = std::max(most_running_, running);
    if (stop_when_ && stop_when_(cells)) ++stops_;
  }
  int stops_wanted() override { return stops_; }

  std::vector<std::size_t> started_;
  std::set<std::size_t> resumed_;
  std::size_t most_running_ = 0;
  std::function<bool(std::span<const CellStatus>)> stop_when_;

 private:
  int stops_ = 0;
};

/// A shell script takes the place of `gnmr train`: it finds its cell's name in --out.
class CellRunnerTest : public ::testing::Test {
 protected:
  CellRunnerTest() {
    for (const char* arm : {"high", "low", "gnmr", "paper", "random", "ends-high"}) add_run(arm, 40);
    std::filesystem::create_directories(folder_.file("ready"));
  }

  /// A run that the script can put in a cell's place.
  void add_run(const std::string& arm, std::int64_t steps_done) {
    test::FakeRun run;
    run.settings.out = folder_.file("ready/" + arm + "-seed0");
    run.settings.steps = 40;
    run.settings.controller = arm == "gnmr" || arm == "paper" ? "gnmr" : "watch";
    run.steps_done = steps_done;
    run.burst_step = 30;
    run.loss = 1;
    test::write_fake_run(run);
  }

  Suite open(const Texts& arms, bool resume = false) {
    return Suite::open({.folder = folder_.file("suite"),
                        .title = "t",
                        .seeds = {0},
                        .arms = choose_arms(arms),
                        .texts = {"steps=40"},
                        .resume = resume});
  }

  /// Runs the suite with a script that begins with `$out` and `$name`; `finish` puts the ready run in its place.
  SuiteOutcome run(const Suite& suite, const std::string& script, std::size_t jobs = 1) {
    test::put_file(folder_.file("program.sh"),
                   "for argument in \"$@\"; do case \"$argument\" in --out=*) out=\"${argument#--out=}\";; esac; done\n"
                   "name=$(basename \"$out\")\n"
                   "finish() { mkdir -p \"$out\" && cp -r '" +
                       folder_.file("ready") + "'/\"$name\"/. \"$out\"; }\n" + script + "\n");
    settings_.program = {"/bin/sh", folder_.file("program.sh")};
    settings_.jobs = jobs;
    settings_.look_every = std::chrono::milliseconds(5);
    return run_cells(suite, settings_, watcher_);
  }

  test::TemporaryFolder folder_;
  RunnerSettings settings_;
  Watcher watcher_;
};

TEST_F(CellRunnerTest, AllCellsAreRunAndMeasured) {
  const Suite suite = open({"high", "low", "gnmr", "paper", "random", "ends-high"});
  const SuiteOutcome outcome = run(suite, "echo \"$@\" >>'" + folder_.file("calls") + "'; sleep 0.5; finish", 2);
  EXPECT_EQ(outcome.count(CellState::finished), 6U);
  EXPECT_EQ(watcher_.most_running_, 2U);
  for (const PlannedCell& cell : suite.cells()) {
    EXPECT_TRUE(std::filesystem::exists(suite.cell_path(cell))) << cell.name;
    EXPECT_EQ(suite.finished(cell)->run, "runs/" + cell.name);
  }
  const std::string calls = test::content_of(folder_.file("calls"));
  EXPECT_NE(calls.find("--random-units=0.0625"), std::string::npos) << calls;
  EXPECT_NE(calls.find("--always-high=layers.0.* --always-high=layers.1.*"), std::string::npos) << calls;
}

TEST_F(CellRunnerTest, WhatIsFinishedIsNotRunAgain) {
  run(open({"high", "low"}), "finish");
  watcher_ = Watcher();
  const SuiteOutcome outcome = run(open({"high", "low", "gnmr"}, true), "finish");
  EXPECT_EQ(outcome.count(CellState::finished), 3U);
  EXPECT_EQ(watcher_.started_.size(), 1U);
  EXPECT_TRUE(outcome.cells[0].found);
  EXPECT_EQ(outcome.cells[0].points.size(), 40U);
}

TEST_F(CellRunnerTest, ACrashIsOneCellsResult) {
  const SuiteOutcome outcome = run(open({"high", "low", "gnmr", "random"}),
                                   "if [ \"$name\" = gnmr-seed0 ]; then echo 'gnmr: it broke'; exit 3; fi; finish");
  EXPECT_EQ(outcome.count(CellState::finished), 2U);
  EXPECT_EQ(outcome.cells[2].why, "exit status 3: gnmr: it broke");
  EXPECT_EQ(outcome.cells[3].why, "gnmr-seed0, which it needs, failed");
  EXPECT_FALSE(std::filesystem::exists(folder_.file("suite/cells/gnmr-seed0.json")));
}

TEST_F(CellRunnerTest, AKilledCellIsToldAndRunAgainLater) {
  const SuiteOutcome outcome = run(open({"high", "low"}), "[ \"$name\" = low-seed0 ] && kill -9 $$; finish");
  EXPECT_EQ(outcome.cells[1].why.substr(0, 18), "killed by signal 9");
  watcher_ = Watcher();
  EXPECT_EQ(run(open({"high", "low"}, true), "finish").count(CellState::finished), 2U);
  EXPECT_EQ(watcher_.started_, std::vector<std::size_t>{1});
}

TEST_F(CellRunnerTest, ACellThatEndsTooSoonHasFailed) {
  const SuiteOutcome outcome = run(open({"high"}), "echo 'said nothing of it'");
  EXPECT_EQ(outcome.cells[0].why, "exit status 0: said nothing of it");
}

TEST_F(CellRunnerTest, ACellThatHangsIsGivenUp) {
  settings_.stall_time = std::chrono::seconds(1);
  const SuiteOutcome outcome = run(open({"high", "low"}), "[ \"$name\" = high-seed0 ] && sleep 600; finish", 2);
  EXPECT_EQ(outcome.cells[0].state, CellState::failed);
  EXPECT_NE(outcome.cells[0].why.find("no step in 1 s"), std::string::npos);
  EXPECT_EQ(outcome.cells[1].state, CellState::finished);
}

TEST_F(CellRunnerTest, AStopLetsChildrenWriteTheirCheckpointAndResumeGoesOn) {
  const std::string script =
      "[ -e \"$out/checkpoints/step-00000010\" ] && { finish; exit 0; }\n"
      "[ -e '" +
      folder_.file("begun") +
      "' ] && { finish; exit 0; }\n"
      "trap 'mkdir -p \"$out/checkpoints/step-00000010\"; exit 0' INT\n"
      "touch '" +
      folder_.file("begun") + "'; while true; do sleep 0.02; done";
  watcher_.stop_when_ = [&](auto) {
    return std::filesystem::exists(folder_.file("begun")) && watcher_.stops_wanted() == 0;
  };
  const SuiteOutcome outcome = run(open({"high", "low"}), script);
  EXPECT_TRUE(outcome.stopped);
  EXPECT_EQ(outcome.count(CellState::waiting), 2U);
  EXPECT_EQ(watcher_.started_, std::vector<std::size_t>{0});
  watcher_ = Watcher();
  EXPECT_EQ(run(open({"high", "low"}, true), script).count(CellState::finished), 2U);
  EXPECT_EQ(watcher_.resumed_, std::set<std::size_t>{0});
}

TEST_F(CellRunnerTest, AChildThatDoesNotStopIsKilled) {
  settings_.stop_time = std::chrono::seconds(0);
  watcher_.stop_when_ = [&](auto) { return std::filesystem::exists(folder_.file("begun")); };
  const SuiteOutcome outcome =
      run(open({"high"}), "trap '' INT TERM; touch '" + folder_.file("begun") + "'; while true; do sleep 0.02; done");
  EXPECT_TRUE(outcome.stopped);
  EXPECT_EQ(outcome.cells[0].state, CellState::waiting);
}

TEST_F(CellRunnerTest, WhatWasBegunWithoutACheckpointBeginsAgainInItsFolder) {
  std::filesystem::create_directories(folder_.file("suite/runs/high-seed0"));
  test::put_file(folder_.file("suite/runs/high-seed0/leftover"), "x");
  const SuiteOutcome outcome = run(open({"high"}), "case \"$*\" in *--resume*) finish;; esac");
  EXPECT_EQ(outcome.count(CellState::finished), 1U);
  EXPECT_TRUE(watcher_.resumed_.empty()) << "there was nothing to continue";
  EXPECT_EQ(test::content_of(folder_.file("suite/runs/high-seed0/leftover")), "x");
}

TEST_F(CellRunnerTest, AProgramThatIsNotThereIsTold) {
  const Suite suite = open({"high"});
  settings_.program = {folder_.file("nothing"), "train"};
  const SuiteOutcome outcome = run_cells(suite, settings_, watcher_);
  EXPECT_EQ(outcome.cells[0].state, CellState::failed);
  EXPECT_NE(outcome.cells[0].why.find("cannot start it"), std::string::npos) << outcome.cells[0].why;
}

}  // namespace
}  // namespace gnmr::lab
