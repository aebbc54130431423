// SPDX-License-Identifier: Apache-2.0
#include "gnmr/run/run_batches.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace gnmr::run {
namespace {

TEST(RunBatches, StepAndBatchHaveOneNumberUntilABatchComesAgain) {
  // Batches 3 and 4 are held in steps 3 and 4.
  const RunBatches batches(std::vector<TrainLine>{{.step = 1},
                                                  {.step = 2},
                                                  {.step = 3},
                                                  {.step = 4},
                                                  {.step = 5, .batch = 3},
                                                  {.step = 6, .batch = 4},
                                                  {.step = 7, .batch = 5}});
  std::vector<std::int64_t> found;
  for (std::int64_t step = 1; step <= 7; ++step) found.push_back(batches.of(step));
  EXPECT_EQ(found, (std::vector<std::int64_t>{1, 2, 3, 4, 3, 4, 5}));
  EXPECT_EQ(batches.last(), 5);
  EXPECT_EQ(batches.first_step(3), 3);
  EXPECT_EQ(batches.last_step(3), 3);
  EXPECT_EQ(batches.first_step(4), 4);
  EXPECT_EQ(batches.last_step(4), 6) << "both come again before batch 5";
  EXPECT_EQ(batches.first_step(5), 7);
  EXPECT_EQ(batches.last_step(5), 7);
  EXPECT_EQ(batches.first_step(8), 10) << "had the run gone on";
  EXPECT_EQ(batches.last_step(8), 10);
}

TEST(RunBatches, AStepWithoutALineRanAFreshBatch) {
  const RunBatches plain(std::vector<TrainLine>{{.step = 1}, {.step = 5}});
  EXPECT_EQ(plain.of(3), 3);
  EXPECT_EQ(plain.of(6), 6);
  const RunBatches held(std::vector<TrainLine>{{.step = 4}, {.step = 5, .batch = 3}, {.step = 8, .batch = 6}});
  EXPECT_EQ(held.of(2), 2);
  EXPECT_EQ(held.of(6), 5) << "4 was the newest";
  for (std::int64_t batch = 1; batch <= 7; ++batch) {
    EXPECT_EQ(plain.first_step(batch), batch);
    EXPECT_EQ(plain.last_step(batch), batch);
  }
  EXPECT_EQ(RunBatches({}).of(9), 9);
  EXPECT_EQ(RunBatches({}).first_step(9), 9);
  EXPECT_EQ(RunBatches({}).last(), 0);
}

TEST(RunBatches, DamagedNumbersAreNoFailure) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const RunBatches batches(std::vector<TrainLine>{{.step = 1, .batch = kMost}});
  EXPECT_EQ(batches.last(), kMost);
  batches.of(kMost);
  batches.first_step(-kMost);
  batches.last_step(kMost);
}

}  // namespace
}  // namespace gnmr::run
