// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/fault_harm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "gnmr/core/error.h"
#include "io/temporary_folder.h"

namespace gnmr::lab {
namespace {

const double kInfinity = std::numeric_limits<double>::infinity();

/// A fault of five steps in layer `a`, from step 10 on.
ListedFault fault() { return {.fault = "saturate", .layer = "a", .first = 10, .last = 14}; }

/// Harm in each of a few steps of layer `a`.
std::vector<run::HarmLine> harm(std::int64_t first, std::int64_t last, double distance) {
  std::vector<run::HarmLine> lines;
  for (std::int64_t step = first; step <= last; ++step) lines.push_back({step, "a", distance});
  return lines;
}

/// Of a run of 20 steps in which no batch was held.
run::RunBatches batches() { return run::RunBatches(std::vector<run::TrainLine>{{.step = 20}}); }

io::Journal admitting(const std::string& unit, std::int64_t step) {
  io::Journal journal;
  journal.steps.push_back(
      {.number = step, .events = {{.step = step, .unit = unit, .event = io::JournalEventKind::admitted}}});
  return journal;
}

TEST(FaultHarm, AFaultIsHarmfulWhereOneOfItsStepsMovedTheGradient) {
  std::vector<run::HarmLine> lines = harm(10, 14, 0.1);
  EXPECT_EQ(fault_harm(std::vector{fault()}, lines, batches(), nullptr).harmful, 0U);
  lines[3].distance = 0.11;
  const FaultHarm one = fault_harm(std::vector{fault()}, lines, batches(), nullptr);
  EXPECT_EQ(one.faults, 1U);
  EXPECT_EQ(one.harmful, 1U);
  EXPECT_EQ(one.met, 0U);
  EXPECT_EQ(one.recall(), 0);
  lines[3].distance = kInfinity;
  EXPECT_EQ(fault_harm(std::vector{fault()}, lines, batches(), nullptr).harmful, 1U);
  // Harm of another layer, or of other steps, is not its harm.
  EXPECT_EQ(fault_harm(std::vector{fault()}, std::vector<run::HarmLine>{{12, "b", 1}, {15, "a", 1}}, batches(), nullptr)
                .harmful,
            0U);
}

TEST(FaultHarm, AnAdmissionMeetsItUpToItsLastStep) {
  const auto met = [](const std::string& unit, std::int64_t step) {
    const io::Journal journal = admitting(unit, step);
    return fault_harm(std::vector{fault()}, harm(10, 14, 1), batches(), &journal).met;
  };
  EXPECT_EQ(met("a", 9), 0U);
  EXPECT_EQ(met("a", 10), 1U);
  EXPECT_EQ(met("a", 14), 1U);
  EXPECT_EQ(met("a", 15), 0U);
  EXPECT_EQ(met("b", 12), 0U);
}

TEST(FaultHarm, ALayerThatRunsHighInAStepHasMetItAndInAllStepsItIsCovered) {
  const FaultHarm partly = fault_harm(std::vector{fault()}, harm(10, 11, 1), batches(), nullptr);
  EXPECT_EQ(partly.met, 1U);
  EXPECT_EQ(partly.covered, 0U);
  const FaultHarm covered = fault_harm(std::vector{fault()}, {}, batches(), nullptr);
  EXPECT_EQ(covered.harmful, 0U);
  EXPECT_EQ(covered.covered, 1U);
  EXPECT_EQ(covered.counted(), 1U);
  EXPECT_EQ(covered.recall(), 1);
}

TEST(FaultHarm, ATransientFaultIsMetWhereItsStepRanAgain) {
  const ListedFault once{.fault = "saturate", .layer = "a", .first = 10, .last = 10, .transient = true};
  io::Journal journal;
  journal.steps.push_back({.number = 10, .trials = {{.step = 10, .verdict = "unlocated"}}});
  EXPECT_EQ(fault_harm(std::vector{once}, harm(10, 10, 1), batches(), &journal).met, 1U);
  // A sticky one is there again in the next step: a rerun alone is not enough.
  EXPECT_EQ(fault_harm(std::vector{fault()}, harm(10, 14, 1), batches(), &journal).met, 0U);
}

TEST(FaultHarm, WhatRanAgainInALaterStepAnswersItsBatch) {
  const ListedFault once{.fault = "saturate", .layer = "a", .first = 10, .last = 10, .transient = true};
  // Step 12 runs batch 10 again.
  const run::RunBatches late(
      std::vector<run::TrainLine>{{.step = 10}, {.step = 11}, {.step = 12, .batch = 10}, {.step = 20, .batch = 19}});
  io::Journal rerun;
  rerun.steps.push_back({.number = 12, .trials = {{.step = 12, .verdict = "unlocated"}}});
  EXPECT_EQ(fault_harm(std::vector{once}, harm(10, 10, 1), late, &rerun).met, 1U);
  EXPECT_EQ(fault_harm(std::vector{once}, harm(10, 10, 1), batches(), &rerun).met, 0U);
  const ListedFault sticky{.fault = "saturate", .layer = "a", .first = 9, .last = 10};
  const io::Journal admission = admitting("a", 12);
  EXPECT_EQ(fault_harm(std::vector{sticky}, harm(9, 10, 1), late, &admission).met, 1U);
  EXPECT_EQ(fault_harm(std::vector{sticky}, harm(9, 10, 1), batches(), &admission).met, 0U);
  EXPECT_EQ(fault_harm(std::vector{sticky}, harm(9, 10, 1), late, &rerun).met, 0U) << "a rerun that named nobody";
}

TEST(FaultHarm, BatchesThatNeverRanAreNeitherMetNorCovered) {
  const run::RunBatches short_run(std::vector<run::TrainLine>{{.step = 14, .batch = 12}});
  const FaultHarm cut = fault_harm(std::vector{fault()}, harm(10, 12, 1), short_run, nullptr);
  EXPECT_EQ(cut.harmful, 1U);
  EXPECT_EQ(cut.met, 0U) << "low in all of its batches that ran";
  const ListedFault later{.fault = "saturate", .layer = "a", .first = 13, .last = 14};
  const FaultHarm none = fault_harm(std::vector{later}, {}, short_run, nullptr);
  EXPECT_EQ(none.faults, 0U);
  EXPECT_EQ(none.covered, 0U);
}

TEST(FaultHarm, AFaultOfTheRunIsInNoLayer) {
  const FaultHarm result =
      fault_harm(std::vector<ListedFault>{{.fault = "bad-batch", .first = 7, .last = 7}}, {}, batches(), nullptr);
  EXPECT_EQ(result.of_run, 1U);
  EXPECT_EQ(result.faults, 0U);
  EXPECT_EQ(result.covered, 0U);
  EXPECT_TRUE(std::isnan(result.recall()));
}

TEST(FaultList, LinesAreReadAndDamageIsNamed) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("faults.jsonl");
  test::put_file(
      path,
      "{\"kind\":\"note\"}\n"
      "{\"kind\":\"fault\",\"fault\":\"saturate\",\"site\":\"cast\",\"layer\":\"a\",\"first\":10,\"last\":14,"
      "\"transient\":false,\"strength\":64}\n"
      "{\"kind\":\"fault\",\"fault\":\"bad-batch\",\"site\":\"run\",\"layer\":null,\"first\":7,\"last\":7,"
      "\"transient\":false,\"strength\":64}\n");
  const std::vector<ListedFault> faults = read_fault_list(path);
  ASSERT_EQ(faults.size(), 2U);
  EXPECT_EQ(faults[0], fault());
  EXPECT_EQ(faults[1].layer, "");
  test::put_file(path, "{\"kind\":\"fault\"}\n");
  EXPECT_NE(test::error_of<Error>([&] { read_fault_list(path); }).find("line 1"), std::string::npos);
}

}  // namespace
}  // namespace gnmr::lab
