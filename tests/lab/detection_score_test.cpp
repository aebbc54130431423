// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/detection_score.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <vector>

namespace gnmr::lab {
namespace {

/// Plays a script for one unit: faulty steps, admissions by step, and the steps in which it is in recovery.
DetectionScore play(const std::vector<std::uint8_t>& faulty, const std::vector<std::int64_t>& admitted_at,
                    std::int64_t lock_steps) {
  DetectionScore score(1);
  std::int64_t left = 0;
  const std::vector<UnitIndex> unit{0};
  for (std::int64_t step = 0; step < static_cast<std::int64_t>(faulty.size()); ++step) {
    Decision decision{.step = step};
    if (left > 0) --left;
    if (std::find(admitted_at.begin(), admitted_at.end(), step) != admitted_at.end()) {
      decision.admitted = unit;
      left = lock_steps;
    }
    if (left > 0) decision.recovered = unit;
    score.add(std::span(&faulty[static_cast<std::size_t>(step)], 1), decision);
  }
  return score;
}

TEST(DetectionScore, CountsAFaultFoundInItsFirstStepWithDelayZero) {
  const DetectionScore score = play({0, 0, 1, 1, 0, 0}, {2}, 2);
  EXPECT_EQ(score.faults(), 1u);
  EXPECT_EQ(score.recall(), 1.0);
  EXPECT_EQ(score.precision(), 1.0);
  EXPECT_EQ(score.mean_delay(), 0.0);
}

TEST(DetectionScore, FindsAFaultUpToItsLastStep) {
  EXPECT_EQ(play({0, 1, 1, 0, 0}, {2}, 1).found(), 1u);
  EXPECT_EQ(play({0, 1, 1, 0, 0}, {2}, 1).mean_delay(), 1.0);
  EXPECT_EQ(play({0, 1, 1, 0, 0}, {3}, 1).found(), 0u);
  EXPECT_EQ(play({0, 1, 1, 0, 0}, {3}, 1).precision(), 0.0);
}

TEST(DetectionScore, CountsAFaultAsFoundWhereTheUnitIsInRecoveryAlready) {
  const DetectionScore score = play({0, 0, 0, 1, 0}, {1}, 5);
  EXPECT_EQ(score.found(), 1u);
  EXPECT_EQ(score.precision(), 0.0);
  EXPECT_TRUE(std::isnan(score.mean_delay()));
}

TEST(DetectionScore, TellsTwoFaultsApartAndLeavesTheMissedOneOut) {
  const DetectionScore score = play({1, 0, 0, 1, 1, 0}, {4}, 1);
  EXPECT_EQ(score.faults(), 2u);
  EXPECT_EQ(score.recall(), 0.5);
  EXPECT_EQ(score.mean_delay(), 1.0);
}

TEST(DetectionScore, TheLongestDelayIsOfFaultsThatAnAdmissionFound) {
  EXPECT_EQ(play({1, 0, 0, 1, 1, 1, 0}, {0, 5}, 1).largest_delay(), 2.0);
  EXPECT_EQ(play({1, 0, 0, 1, 1, 1, 0}, {0, 5}, 1).mean_delay(), 1.0);
  EXPECT_TRUE(std::isnan(play({0, 0, 0, 1, 0}, {1}, 5).largest_delay()));
}

TEST(DetectionScore, AStepThatComesAgainIsJudgedAsTheStepThatItIs) {
  DetectionScore score(1);
  const std::vector<UnitIndex> unit{0};
  const std::uint8_t faulty = 1;
  const std::uint8_t sound = 0;
  score.add({&faulty, 1}, {.step = 1});
  score.add({&faulty, 1}, {.step = 2});
  score.add({&sound, 1}, {.step = 3});
  // Step 2 again: it finds the fault of steps 1 and 2, which is still one, though step 3 was sound.
  score.add_again({.step = 2, .recovered = unit, .admitted = unit});
  // Step 3 again, with the unit in recovery; then a new fault, while it is.
  score.add_again({.step = 3, .recovered = unit});
  score.add({&faulty, 1}, {.step = 4});
  EXPECT_EQ(score.faults(), 2u);
  EXPECT_EQ(score.found(), 2u);
  EXPECT_EQ(score.precision(), 1.0);
  EXPECT_EQ(score.mean_delay(), 1.0);
  score.add_again({.step = 3, .admitted = unit});
  EXPECT_EQ(score.precision(), 0.5);
}

TEST(DetectionScore, HasNoSharesWhereThereIsNothing) {
  const DetectionScore score = play({0, 0}, {}, 1);
  EXPECT_TRUE(std::isnan(score.recall()));
  EXPECT_TRUE(std::isnan(score.precision()));
}

}  // namespace
}  // namespace gnmr::lab
