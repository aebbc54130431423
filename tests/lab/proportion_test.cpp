// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/proportion.h"

#include <gtest/gtest.h>

#include <cmath>

namespace gnmr::lab {
namespace {

TEST(Proportion, IntervalsAreThoseOfTheTables) {
  // R: binom.test(5, 10)$conf.int and so on.
  const Proportion half = proportion(5, 10);
  EXPECT_NEAR(half.low, 0.1870860, 1e-6);
  EXPECT_NEAR(half.high, 0.8129140, 1e-6);
  const Proportion most = proportion(9, 10);
  EXPECT_NEAR(most.low, 0.5549839, 1e-6);
  EXPECT_NEAR(most.high, 0.9974714, 1e-6);
}

TEST(Proportion, AllAndNoneHaveClosedForms) {
  for (const std::uint64_t cases : {1U, 10U, 60U, 3000U}) {
    const double bound = std::pow(0.025, 1.0 / static_cast<double>(cases));
    EXPECT_NEAR(proportion(cases, cases).low, bound, 1e-9);
    EXPECT_EQ(proportion(cases, cases).high, 1);
    EXPECT_EQ(proportion(0, cases).low, 0);
    EXPECT_NEAR(proportion(0, cases).high, 1 - bound, 1e-9);
  }
  EXPECT_EQ(proportion_text(proportion(60, 60)), "60 of 60 [94, 100]");
}

TEST(Proportion, MoreHitsThanCasesAreAll) { EXPECT_EQ(proportion(7, 5).hits, 5U); }

}  // namespace
}  // namespace gnmr::lab
