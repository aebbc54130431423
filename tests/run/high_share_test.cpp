// SPDX-License-Identifier: Apache-2.0
#include "gnmr/run/high_share.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace gnmr::run {
namespace {

TrainLine high_line(std::int64_t recovered, std::int64_t standing, std::int64_t rerun_high) {
  return {.recovered = recovered, .standing = standing, .rerun_high = rerun_high};
}

TEST(HighShares, PartsAddUp) {
  // Four units, five steps: one acute unit in two steps, one standing unit in three, a trial and a replay of one unit.
  const std::vector<TrainLine> lines{high_line(0, 0, 4), high_line(2, 1, 0), high_line(2, 1, 1), high_line(1, 1, 0),
                                     high_line(0, 0, 0)};
  const std::optional<HighShares> shares = high_shares(lines, 4);
  ASSERT_TRUE(shares);
  EXPECT_DOUBLE_EQ(shares->acute, 2.0 / 20);
  EXPECT_DOUBLE_EQ(shares->standing, 3.0 / 20);
  EXPECT_DOUBLE_EQ(shares->reruns, 5.0 / 20);
  EXPECT_DOUBLE_EQ(shares->total(), 10.0 / 20);
  EXPECT_EQ((HighCounts{.unit_steps = 20, .recovered = 5, .standing = 3, .rerun_high = 5}).shares(), *shares);
  EXPECT_EQ(high_shares_text(*shares),
            "50.00% of unit-steps in high precision: 10.00% acute recovery, 15.00% standing recovery, 25.00% reruns");
}

TEST(HighShares, AreNotGuessed) {
  EXPECT_FALSE(high_shares({}, 4));
  EXPECT_FALSE(high_shares(std::vector<TrainLine>{high_line(0, 0, 0)}, 0));
  std::vector<TrainLine> lines{high_line(1, 0, 0), high_line(1, 0, 0)};
  lines[1].standing.reset();
  EXPECT_FALSE(high_shares(lines, 4)) << "a line of an earlier version";
  lines[1] = high_line(1, 0, 0);
  lines[1].rerun_high.reset();
  EXPECT_FALSE(high_shares(lines, 4));
  EXPECT_FALSE(high_shares(std::vector<TrainLine>{high_line(1, -1, 0)}, 4));
  EXPECT_EQ(HighCounts{}.shares(), HighShares{});
}

TEST(HighShares, NumbersOfADamagedFileDoNotOverflow) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const std::vector<TrainLine> lines{high_line(kMost, kMost, kMost), high_line(kMost, 0, kMost)};
  const std::optional<HighShares> shares = high_shares(lines, 1);
  ASSERT_TRUE(shares);
  EXPECT_GT(shares->total(), 1e18);
}

}  // namespace
}  // namespace gnmr::run
