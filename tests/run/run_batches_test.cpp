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
}

TEST(RunBatches, AStepWithoutALineRanAFreshBatch) {
  const RunBatches plain(std::vector<TrainLine>{{.step = 1}, {.step = 5}});
  EXPECT_EQ(plain.of(3), 3);
  EXPECT_EQ(plain.of(6), 6);
  const RunBatches held(std::vector<TrainLine>{{.step = 4}, {.step = 5, .batch = 3}, {.step = 8, .batch = 6}});
  EXPECT_EQ(held.of(2), 2);
  EXPECT_EQ(held.of(6), 5) << "4 was the newest";
  EXPECT_EQ(RunBatches({}).of(9), 9);
  EXPECT_EQ(RunBatches({}).last(), 0);
}

TEST(RunBatches, DamagedNumbersAreNoFailure) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const RunBatches batches(std::vector<TrainLine>{{.step = 1, .batch = kMost}});
  EXPECT_EQ(batches.last(), kMost);
  batches.of(kMost);
}

}  // namespace
}  // namespace gnmr::run
