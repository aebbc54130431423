// SPDX-License-Identifier: Apache-2.0
#include "gnmr/train/schedule.h"

#include <gtest/gtest.h>

namespace gnmr::train {
namespace {

TEST(Schedule, RisesStraightThenFallsByHalfACosine) {
  const Schedule schedule{.highest = 0.004, .final_share = 0.1, .warmup_steps = 4, .steps = 104};
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 1), 0.001);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 3), 0.003);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 4), 0.004);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 54), 0.004 * (0.1 + 0.9 * 0.5));
  EXPECT_NEAR(learning_rate(schedule, 29), 0.004 * (0.1 + 0.9 * (0.5 + std::sqrt(0.125))), 1e-15);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 104), 0.0004);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 1000), 0.0004);
  for (std::int64_t step = 5; step <= 104; ++step) {
    EXPECT_LT(learning_rate(schedule, step), learning_rate(schedule, step - 1));
  }
}

TEST(Schedule, Ends) {
  EXPECT_DOUBLE_EQ(learning_rate({.highest = 1, .final_share = 0.5, .warmup_steps = 0, .steps = 1}, 1), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate({.highest = 1, .final_share = 0.5, .warmup_steps = 10, .steps = 5}, 5), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate({.highest = 1, .final_share = 0.5, .warmup_steps = 5, .steps = 5}, 5), 1);
  EXPECT_DOUBLE_EQ(learning_rate({.highest = 1, .final_share = 1, .warmup_steps = 0, .steps = 9}, 7), 1);
}

}  // namespace
}  // namespace gnmr::train
