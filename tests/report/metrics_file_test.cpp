// SPDX-License-Identifier: Apache-2.0
#include "gnmr/report/metrics_file.h"

#include <gtest/gtest.h>

#include <cmath>

#include "gnmr/core/error.h"
#include "io/temporary_folder.h"

namespace gnmr::report {
namespace {

using test::error_of;
using test::put_file;

class MetricsFile : public ::testing::Test {
 protected:
  Metrics read(const std::string& text) {
    put_file(path(), text);
    return read_metrics(path());
  }
  std::string path() const { return folder_.file("metrics.jsonl"); }
  test::TemporaryFolder folder_;
};

TEST_F(MetricsFile, GivesWhatWasWritten) {
  const Metrics metrics = read(
      "{\"kind\":\"train\",\"step\":1,\"loss\":5.5,\"grad_norm\":\"inf\",\"applied\":false,\"seconds\":0.5,"
      "\"recovered\":2}\n"
      "{\"kind\":\"weather\",\"step\":\"sunny\"}\n"
      "\n"
      "{\"kind\":\"eval\",\"step\":1,\"loss_high\":2.25,\"loss_low\":\"nan\"}\n");
  ASSERT_EQ(metrics.train.size(), 1U);
  EXPECT_EQ(metrics.train[0].step, 1);
  EXPECT_EQ(metrics.train[0].loss, 5.5);
  EXPECT_TRUE(std::isinf(*metrics.train[0].grad_norm));
  EXPECT_FALSE(metrics.train[0].applied);
  EXPECT_FALSE(metrics.train[0].tokens.has_value());
  EXPECT_EQ(metrics.train[0].recovered, 2);
  ASSERT_EQ(metrics.evals.size(), 1U);
  EXPECT_EQ(metrics.evals[0].loss_high, 2.25);
  EXPECT_TRUE(std::isnan(*metrics.evals[0].loss_low));
  EXPECT_FALSE(metrics.torn);
}

TEST_F(MetricsFile, AResumedRunSupersedesItsStepsAndThoseItHasNotReachedAgain) {
  const Metrics metrics = read(
      "{\"kind\":\"train\",\"step\":1,\"loss\":5}\n{\"kind\":\"train\",\"step\":2,\"loss\":4}\n"
      "{\"kind\":\"eval\",\"step\":1,\"loss_high\":1}\n{\"kind\":\"eval\",\"step\":3,\"loss_high\":3}\n"
      "{\"kind\":\"train\",\"step\":3,\"loss\":3}\n{\"kind\":\"resume\",\"step\":2}\n"
      "{\"kind\":\"train\",\"step\":2,\"loss\":4.5}\n{\"kind\":\"train\",\"step\":2,\"loss\":4.25}\n");
  ASSERT_EQ(metrics.train.size(), 2U);
  EXPECT_EQ(metrics.train[1].loss, 4.25);
  ASSERT_EQ(metrics.evals.size(), 1U);
  EXPECT_EQ(metrics.evals[0].step, 1);
  EXPECT_EQ(metrics.resumes, std::vector<std::int64_t>{2});
}

TEST_F(MetricsFile, TornLastLineIsPassedOver) {
  const Metrics metrics = read("{\"kind\":\"train\",\"step\":1,\"loss\":5}\n{\"kind\":\"train\",\"st");
  EXPECT_EQ(metrics.train.size(), 1U);
  EXPECT_TRUE(metrics.torn);
  EXPECT_TRUE(read("").train.empty());
  EXPECT_EQ(read("{\"kind\":\"note\",\"dropped\":3,\"text\":\"x\"}\n").dropped, 3U);
}

TEST_F(MetricsFile, AnyOtherBadLineIsAnErrorWithItsNumber) {
  const std::string good = "{\"kind\":\"train\",\"step\":1}\n";
  for (const auto& entry : std::vector<std::pair<std::string, std::string>>{
           {"{\"kind\":\"train\",\"st\n", "not JSON"},
           {"[1]\n", "must be a JSON object"},
           {"{\"kind\":\"train\"}\n", "has no \"step\""},
           {"{\"kind\":\"train\",\"step\":1.5}\n", "\"step\" must be a whole number"},
           {"{\"kind\":\"train\",\"step\":1,\"loss\":\"low\"}\n", "\"loss\" must be a number"},
           {"{\"kind\":\"train\",\"step\":1,\"applied\":1}\n", "\"applied\" must be true or false"},
           {"{\"kind\":7,\"step\":1}\n", "\"kind\" must be a text"}}) {
    const std::string message = error_of<Error>([&] { read(good + entry.first + good); });
    EXPECT_NE(message.find(path() + ": line 2: "), std::string::npos) << message;
    EXPECT_NE(message.find(entry.second), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace gnmr::report
