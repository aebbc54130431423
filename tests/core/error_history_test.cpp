// SPDX-License-Identifier: Apache-2.0
// Usual errors and what stands out, with numbers that can be followed by hand.
#include "gnmr/core/error_history.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace gnmr {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

Options simple_options() {
  Options options;
  options.error_factor = 2;
  options.error_floor = 0;
  options.error_ceiling = 0;
  options.error_beta = 0.5;
  options.error_warmup = 2;
  return options;
}

std::vector<UnitIndex> judged(ErrorHistory& history, const std::vector<double>& errors,
                              ErrorSource source = ErrorSource::patrol) {
  std::vector<Finding> found;
  history.judge(errors, source, found);
  std::vector<UnitIndex> units;
  for (const Finding& finding : found) units.push_back(finding.unit);
  return units;
}

TEST(ErrorHistory, WithoutAReferenceOnlyInfinityStandsOut) {
  ErrorHistory history(4, {0.0}, simple_options());
  EXPECT_EQ(judged(history, {1e300, 1e-300, kInfinity, kNan}), (std::vector<UnitIndex>{2}));
  EXPECT_EQ(history.limit(0, 0), kInfinity);
  EXPECT_TRUE(std::isnan(history.limit(3, 0)));
  EXPECT_TRUE(history.was_measured(2));
  EXPECT_FALSE(history.was_measured(3));
}

TEST(ErrorHistory, TheLowerMedianOfFiveFiniteErrorsIsTheFirstReferenceOfATrial) {
  ErrorHistory history(6, {0.0}, simple_options());
  judged(history, {1, 2, 3, 4, kNan, kInfinity}, ErrorSource::trial);
  EXPECT_EQ(history.limit(0, 0), kInfinity) << "four are too few";
  judged(history, {1, 2, 3, 4, 5, kInfinity}, ErrorSource::trial);
  EXPECT_EQ(history.limit(0, 0), 6) << "index 2 of five";
  EXPECT_EQ(judged(history, {6, 5, 4, 3, 2, 1}, ErrorSource::trial), std::vector<UnitIndex>{});
  EXPECT_EQ(history.limit(0, 0), 6) << "index 2 of six";
}

TEST(ErrorHistory, APatrolJudgesNobodyByItsNeighbours) {
  ErrorHistory history(6, {0.0}, simple_options());
  const std::vector<double> errors{1, 1, 1, 1, 1, 9};
  EXPECT_EQ(judged(history, errors, ErrorSource::trial), (std::vector<UnitIndex>{5}));
  for (int step = 0; step < 2; ++step) {
    EXPECT_EQ(judged(history, errors), std::vector<UnitIndex>{});
    history.learn();
  }
  EXPECT_EQ(judged(history, errors, ErrorSource::trial), std::vector<UnitIndex>{}) << "9 is usual for it";
  EXPECT_EQ(history.limit(5, 0), 18);
}

TEST(ErrorHistory, ThenTheSitesOwnMean) {
  ErrorHistory history(1, {0.0}, simple_options());
  judged(history, {4});
  history.learn();
  judged(history, {2});
  EXPECT_EQ(history.limit(0, 0), kInfinity) << "one error is no warm-up";
  history.learn();
  EXPECT_EQ(history.of_unit(0)[0], (ErrorState{.samples = 2, .mean_sum = 2}));  // 0.5 * 2 + 0.5 * 2
  EXPECT_EQ(judged(history, {5.5}), (std::vector<UnitIndex>{0}));
  EXPECT_EQ(history.limit(0, 0), 2 * (2 / 0.75));
  history.learn();
  EXPECT_EQ(history.of_unit(0)[0].samples, 2u) << "what stands out is not learned";
  judged(history, {5});
  history.learn();
  EXPECT_EQ(history.of_unit(0)[0], (ErrorState{.samples = 3, .mean_sum = 3.5}));
}

TEST(ErrorHistory, TheCeilingIsInUnitsOfTheExpectedError) {
  Options options = simple_options();
  options.error_ceiling = 8;
  ErrorHistory history(1, {0.25}, options);
  judged(history, {1.5});
  EXPECT_EQ(history.limit(0, 0), 2) << "before any history";
  for (int step = 0; step < 2; ++step) {
    judged(history, {1.5});
    history.learn();
  }
  judged(history, {1.5});
  EXPECT_EQ(history.limit(0, 0), 2) << "twice its mean would be 3";
  for (int step = 0; step < 60; ++step) {
    judged(history, {0.5});
    history.learn();
  }
  judged(history, {0.5});
  EXPECT_EQ(history.limit(0, 0), 1) << "twice its mean";
  ErrorHistory unknown(1, {0.0}, options);
  judged(unknown, {1});
  EXPECT_EQ(unknown.limit(0, 0), kInfinity);
  options.error_ceiling = 0;
  ErrorHistory open(1, {0.25}, options);
  judged(open, {1});
  EXPECT_EQ(open.limit(0, 0), kInfinity);
}

TEST(ErrorHistory, TheFloorIsAnErrorAndTheLastWord) {
  Options options = simple_options();
  options.error_floor = 0.5;
  options.error_ceiling = 8;
  ErrorHistory history(1, {0.01}, options);
  EXPECT_EQ(judged(history, {0.5}), std::vector<UnitIndex>{});
  EXPECT_EQ(history.limit(0, 0), 0.5) << "above the ceiling";
  for (int step = 0; step < 2; ++step) {
    judged(history, {0.01});
    history.learn();
  }
  EXPECT_EQ(judged(history, {0.51}), (std::vector<UnitIndex>{0}));
  EXPECT_EQ(history.limit(0, 0), 0.5) << "above twice its mean";
}

TEST(ErrorHistory, NoLimitIsBelowAMillionth) {
  ErrorHistory history(1, {0.0}, simple_options());
  for (int step = 0; step < 3; ++step) {
    judged(history, {0});
    history.learn();
  }
  EXPECT_EQ(judged(history, {1e-6}), std::vector<UnitIndex>{});
  EXPECT_EQ(judged(history, {1.1e-6}), (std::vector<UnitIndex>{0}));
}

TEST(ErrorHistory, OfEqualSitesTheFirstIsTold) {
  Options options = simple_options();
  options.error_ceiling = 2;
  ErrorHistory history(1, {0.5, 0.5, 0.5}, options);
  std::vector<Finding> found;
  history.judge(std::vector<double>{0.1, 3, 3}, ErrorSource::patrol, found);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].site, 1);
  EXPECT_EQ(found[0].excess, 3);
  history.judge(std::vector<double>{3, kInfinity, kInfinity}, ErrorSource::patrol, found);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].site, 1);
  EXPECT_EQ(found[0].error, kInfinity);
}

TEST(ErrorHistory, SmallWeightsBecomeZero) {
  ErrorHistory history(1, {0.0}, simple_options());
  for (int step = 0; step < 3000; ++step) {
    judged(history, {1});
    history.learn();
  }
  judged(history, {1});
  EXPECT_EQ(history.limit(0, 0), 2);
}

}  // namespace
}  // namespace gnmr
