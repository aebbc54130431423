// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/progress.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "io/temporary_folder.h"

namespace gnmr::lab {
namespace {

TEST(Progress, OnlyWhatIsNewIsReadAndResumesForget) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("metrics.jsonl");
  ProgressFollower follower(path);
  EXPECT_FALSE(follower.update());
  const auto add = [&](const std::string& text) { std::ofstream(path, std::ios::app) << text; };
  add("{\"kind\":\"train\",\"step\":1,\"loss\":5.5,\"recovered\":0}\n{\"kind\":\"train\",\"step\":2,\"lo");
  EXPECT_TRUE(follower.update());
  EXPECT_EQ(follower.points().size(), 1U);
  add("ss\":\"nan\",\"recovered\":3}\n{\"kind\":\"eval\",\"step\":2,\"loss_high\":5}\nnonsense\n");
  EXPECT_TRUE(follower.update());
  ASSERT_EQ(follower.points().size(), 2U);
  EXPECT_TRUE(std::isnan(follower.points()[1].loss));
  EXPECT_EQ(follower.points()[1].recovered, 3);
  EXPECT_FALSE(follower.update());
  add("{\"kind\":\"resume\",\"step\":2}\n{\"kind\":\"train\",\"step\":2,\"loss\":4,\"recovered\":1}\n");
  EXPECT_TRUE(follower.update());
  ASSERT_EQ(follower.points().size(), 2U);
  EXPECT_EQ(follower.points()[1].loss, 4);
}

TEST(Progress, BatchesThatComeAgainAreStepsMore) {
  const test::TemporaryFolder folder;
  test::put_file(folder.file("metrics.jsonl"),
                 "{\"kind\":\"train\",\"step\":7,\"loss\":1,\"recovered\":0}\n"
                 "{\"kind\":\"train\",\"step\":8,\"loss\":1,\"recovered\":0,\"batch\":6}\n"
                 "{\"kind\":\"train\",\"step\":9,\"loss\":1,\"recovered\":0,\"batch\":8}\n");
  ProgressFollower follower(folder.file("metrics.jsonl"));
  follower.update();
  std::vector<std::int64_t> newest;
  for (const ProgressPoint& point : follower.points()) newest.push_back(point.newest_batch);
  EXPECT_EQ(newest, (std::vector<std::int64_t>{7, 7, 8}));
}

}  // namespace
}  // namespace gnmr::lab
