// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/fault_cells.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "gnmr/core/error.h"
#include "gnmr/lab/fault_suite.h"
#include "gnmr/lab/suite.h"
#include "io/temporary_folder.h"
#include "lab/fake_run.h"

namespace gnmr::lab {
namespace {

using Texts = std::vector<std::string>;

FaultCell cell(const std::string& fault, const std::string& arm, std::int64_t seed, double loss = 2) {
  return {.fault = fault,
          .settings = {{"steps", "300"}, {"seed", std::to_string(seed)}},
          .result = {.arm = arm, .seed = seed, .run = "runs/x", .steps = 300, .loss = loss, .step_ms = 10, .units = 4}};
}

Texts order(const std::vector<FaultCell>& cells) {
  Texts names;
  for (const FaultCell& one : cells) {
    names.push_back(one.fault + " " + one.result.arm + " " + std::to_string(one.result.seed));
  }
  return names;
}

TEST(FaultCells, ComeInTheOrderOfTheirTablesWhateverTheOrderOfTheSources) {
  std::vector<FaultCell> cells{cell("overflow", "trial", 1),     cell("saturate", "retired", 0),
                               cell("saturate:once", "none", 0), cell("none", "trial", 0),
                               cell("saturate", "trial", 10),    cell("saturate", "trial", 9),
                               cell("saturate", "high", 0)};
  const Texts expected{"saturate high 0",      "saturate trial 9", "saturate trial 10", "saturate retired 0",
                       "saturate:once none 0", "overflow trial 1", "none trial 0"};
  EXPECT_EQ(order(merge_cells(cells)), expected);
  std::reverse(cells.begin(), cells.end());
  EXPECT_EQ(order(merge_cells(cells)), expected);
}

TEST(FaultCells, OfTwoTheLastCounts) {
  const std::vector<FaultCell> merged = merge_cells({cell("saturate", "trial", 0, 2), cell("saturate", "trial", 0, 3)});
  ASSERT_EQ(merged.size(), 1U);
  EXPECT_EQ(merged[0].result.loss, 3);
}

TEST(FaultCells, OtherConditionsAreNotCompared) {
  FaultCell longer = cell("saturate", "trial", 1);
  longer.settings = {{"steps", "2000"}, {"seed", "1"}};
  const auto refusal = [&](const FaultCell& other) {
    return test::error_of<Error>([&] { merge_cells({other, longer}); });
  };
  EXPECT_NE(refusal(cell("saturate", "trial", 0)).find("(steps)"), std::string::npos);
  EXPECT_NE(refusal(cell("saturate", "none", 0)).find("(steps)"), std::string::npos);
  EXPECT_NO_THROW(merge_cells({cell("overflow", "trial", 0), longer}));
  // Arms differ in what defines them, the cells of one arm do not.
  FaultCell tuned = cell("saturate", "trial", 1);
  tuned.settings.push_back({"tau", "3"});
  EXPECT_NO_THROW(merge_cells({cell("saturate", "norms", 0), tuned}));
  EXPECT_THROW(merge_cells({cell("saturate", "trial", 0), tuned}), Error);
  // The default text is each machine's own.
  FaultCell here = cell("saturate", "none", 0);
  FaultCell there = cell("saturate", "trial", 0);
  here.result.origin.data = "a1";
  EXPECT_NO_THROW(merge_cells({here, there})) << "not known: from before it was kept";
  there.result.origin.data = "b2";
  EXPECT_NE(test::error_of<Error>([&] { merge_cells({here, there}); }).find("the text itself"), std::string::npos);
  there.result.origin.data = "a1";
  EXPECT_NO_THROW(merge_cells({here, there}));
}

TEST(FaultCells, AFileReadsBackAsItWasWritten) {
  const test::TemporaryFolder folder;
  FaultCell rich = cell("wrong-rows", "trial", 3, std::nan(""));
  rich.result.harm = FaultHarm{.faults = 9, .harmful = 7, .met = 6, .covered = 1, .of_run = 0};
  rich.result.reruns = Reruns{.numeric = 6, .common = 1, .unlocated = 2, .replays = 0, .time_share = 0.05};
  rich.result.detection =
      Detection{.faults = 9, .recall = 0.8, .precision = 0.7, .delay = 0.5, .largest_delay = 3, .outside = 2};
  rich.result.origin.data = "a1b2";
  const std::string lines = cell_lines({cell("none", "trial", 0), rich});
  test::put_file(folder.file("cells.jsonl"), lines);
  const std::vector<FaultCell> read = cells_in_file(folder.file("cells.jsonl"));
  ASSERT_EQ(read.size(), 2U);
  EXPECT_EQ(cell_lines(read), lines);
  EXPECT_EQ(read[1].setting("steps"), "300");
  std::string earlier = lines;
  earlier.replace(earlier.find("\"unlocated\""), 11, "\"gone\"");
  test::put_file(folder.file("earlier.jsonl"), earlier);
  EXPECT_EQ(cell_lines(cells_in_file(folder.file("earlier.jsonl"))), lines) << "the verdict was called gone";
  EXPECT_NE(lines.find("\"site\":\"after-cast\""), std::string::npos);
  test::put_file(folder.file("cells.jsonl"), lines + "{\"kind\":\"cell\",\"version\":1,\"fault\":\"x\"}\n");
  EXPECT_NE(test::error_of<Error>([&] { cells_in_file(folder.file("cells.jsonl")); }).find("line 3"),
            std::string::npos);
}

TEST(FaultCells, AFolderGivesWhatIsFinishedWithItsSettings) {
  const test::TemporaryFolder folder;
  const Suite suite = Suite::open({.folder = folder.file("faults/overflow"),
                                   .title = "t",
                                   .seeds = {4},
                                   .arms = choose_fault_arms(Texts{"none", "trial"}),
                                   .texts = {"steps=40", "faults=overflow"},
                                   .fault = "overflow"});
  const PlannedCell& planned = suite.cells()[1];
  std::string note;
  test::FakeRun run{.settings = suite.settings_of(planned, nullptr, note), .steps_done = 40};
  test::write_fake_run(run);
  ASSERT_TRUE(suite.measure(planned, "").has_value());
  const std::vector<FaultCell> cells = cells_in_folder(folder.file("faults"));
  ASSERT_EQ(cells.size(), 1U);
  EXPECT_EQ(cells[0].fault, "overflow");
  EXPECT_EQ(cells[0].result.arm, "trial");
  EXPECT_EQ(cells[0].setting("fault_seed"), "5");
  EXPECT_EQ(cells[0].setting("selector"), "trial");
  EXPECT_EQ(cells[0].setting("out"), "");
  EXPECT_EQ(cell_lines(cells_in_folder(folder.file("faults/overflow"))), cell_lines(cells));
  // Runs are large and may go: their arm's settings stay.
  std::filesystem::remove_all(suite.run_folder(planned));
  EXPECT_EQ(cell_lines(cells_in_folder(folder.file("faults"))), cell_lines(cells));
  EXPECT_NE(test::error_of<Error>([&] { cells_in_folder(folder.file("nothing")); }).find("nothing"), std::string::npos);
  // A fault that nobody knows is damage of that file.
  const std::string file = folder.file("faults/overflow/suite.json");
  std::string text = test::content_of(file);
  for (std::size_t at = 0; (at = text.find("\"overflow\"", at)) != std::string::npos;)
    text.replace(at, 10, "\"overflnw\"");
  test::put_file(file, text);
  const std::string damaged = test::error_of<Error>([&] { cells_in_folder(folder.file("faults")); });
  EXPECT_TRUE(damaged.starts_with(file + ": no fault is named \"overflnw\"")) << damaged;
}

}  // namespace
}  // namespace gnmr::lab
