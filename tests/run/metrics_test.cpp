// SPDX-License-Identifier: Apache-2.0
#include "gnmr/run/metrics.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <limits>
#include <nlohmann/json.hpp>

#include "gnmr/core/error.h"
#include "io/file_size_limit.h"
#include "io/temporary_folder.h"

namespace gnmr::run {
namespace {

using gnmr::test::content_of;
using gnmr::test::error_of;
using gnmr::test::lines_of;
using gnmr::test::put_file;
using gnmr::test::TemporaryFolder;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TrainLine line_of(std::int64_t step, double loss = 5.5) {
  return {.step = step, .loss = loss, .lr = 0.001, .grad_norm = 1.25, .clip = 0.8, .tokens = 2048, .seconds = 0.11};
}

TEST(Metrics, LinesAreAsDocumented) {
  const TemporaryFolder folder;
  const std::string path = folder.file("metrics.jsonl");
  MetricsWriter writer({.path = path});
  writer.write(line_of(1));
  writer.write(EvalLine{.step = 50, .loss_high = 2.31, .loss_low = 2.35, .loss_trained = 2.33});
  writer.write(EvalLine{.step = 51, .loss_high = 2.25});
  writer.write(TrainLine{.step = 2,
                         .loss = kInfinity,
                         .grad_norm = -std::nan(""),
                         .applied = false,
                         .high = 3,
                         .standing = 1,
                         .rerun_high = 28,
                         .high_cost = 1.25,
                         .rule_acted = false,
                         .batch = 1});
  ASSERT_TRUE(writer.close());
  EXPECT_EQ(
      content_of(path),
      "{\"kind\":\"train\",\"step\":1,\"loss\":5.5,\"lr\":0.001,\"grad_norm\":1.25,\"clip\":0.8,\"applied\":true,"
      "\"tokens\":2048,\"seconds\":0.11,\"recovered\":0,\"high\":0}\n"
      "{\"kind\":\"eval\",\"step\":50,\"loss_high\":2.31,\"loss_low\":2.35,\"loss_trained\":2.33}\n"
      "{\"kind\":\"eval\",\"step\":51,\"loss_high\":2.25}\n"
      "{\"kind\":\"train\",\"step\":2,\"loss\":\"inf\",\"lr\":0,\"grad_norm\":\"nan\",\"clip\":1,\"applied\":false,"
      "\"tokens\":0,\"seconds\":0,\"recovered\":0,\"high\":3,\"standing\":1,\"rerun_high\":28,\"high_cost\":1.25,"
      "\"rule_acted\":false,"
      "\"batch\":1}\n");
  const Metrics metrics = read_metrics(path);
  ASSERT_EQ(metrics.train.size(), 2U);
  EXPECT_EQ(metrics.train[0], line_of(1));
  EXPECT_EQ(metrics.train[1].loss, kInfinity);
  EXPECT_TRUE(std::isnan(metrics.train[1].grad_norm));
  EXPECT_FALSE(metrics.train[1].applied);
  EXPECT_EQ(metrics.train[1].batch, 1);
  EXPECT_EQ(metrics.train[1].high_cost, 1.25);
  EXPECT_EQ(metrics.train[1].rule_acted, false);
  EXPECT_EQ(metrics.evals[0].loss_trained, 2.33);
  EXPECT_FALSE(metrics.train[0].high_cost || metrics.train[0].rule_acted || metrics.evals[1].loss_trained);
  ASSERT_EQ(metrics.evals.size(), 2U);
  EXPECT_EQ(metrics.evals[1], (EvalLine{.step = 51, .loss_high = 2.25}));
  EXPECT_FALSE(metrics.torn);
}

TEST(Metrics, AResumedRunSupersedesWhatAKilledOneLeft) {
  const TemporaryFolder folder;
  const std::string path = folder.file("metrics.jsonl");
  {
    MetricsWriter writer({.path = path});
    for (std::int64_t step = 1; step <= 8; ++step) writer.write(line_of(step, 9));
    writer.write(EvalLine{.step = 3, .loss_high = 3});
    writer.write(EvalLine{.step = 7, .loss_high = 7});
  }
  put_file(path, content_of(path) + "{\"kind\":\"train\",\"step\":9,\"lo");
  EXPECT_TRUE(read_metrics(path).torn);
  MetricsWriter writer({.path = path, .existing = io::ExistingFile::resume, .resume_step = 6});
  writer.write(line_of(6, 1));
  ASSERT_TRUE(writer.close());
  const Metrics metrics = read_metrics(path);
  EXPECT_FALSE(metrics.torn);
  EXPECT_EQ(metrics.resumes, std::vector<std::int64_t>{6});
  ASSERT_EQ(metrics.train.size(), 6U);
  EXPECT_EQ(metrics.train[4].loss, 9);
  EXPECT_EQ(metrics.train[5], line_of(6, 1));
  ASSERT_EQ(metrics.evals.size(), 1U);
  EXPECT_EQ(metrics.evals[0].step, 3);
}

TEST(Metrics, ARunThatResumesWithoutAFileBeginsOne) {
  const TemporaryFolder folder;
  MetricsWriter writer({.path = folder.file("m"), .existing = io::ExistingFile::resume, .resume_step = 6});
  writer.write(line_of(6));
  ASSERT_TRUE(writer.close());
  EXPECT_EQ(lines_of(content_of(folder.file("m"))).size(), 1U);
}

TEST(Metrics, AnotherRunsFileIsRefused) {
  const TemporaryFolder folder;
  put_file(folder.file("m"), "{}\n");
  EXPECT_NE(error_of<Error>([&] { MetricsWriter({.path = folder.file("m")}); }), "");
}

TEST(Metrics, TheLastLineOfAStepCounts) {
  const TemporaryFolder folder;
  put_file(folder.file("m"),
           "{\"kind\":\"train\",\"step\":2,\"loss\":1}\n{\"kind\":\"train\",\"step\":1,\"loss\":2}\n\n"
           "{\"kind\":\"hello\",\"what\":[1]}\n{\"kind\":\"train\",\"step\":2,\"loss\":\"-inf\",\"new\":{}}\n");
  const Metrics metrics = read_metrics(folder.file("m"));
  ASSERT_EQ(metrics.train.size(), 2U);
  EXPECT_EQ(metrics.train[0].loss, 2);
  EXPECT_EQ(metrics.train[1].loss, -kInfinity);
}

TEST(Metrics, DamageIsToldWithFileAndLine) {
  const TemporaryFolder folder;
  const std::string path = folder.file("m");
  const auto message = [&](const std::string& line) {
    put_file(path, "{\"kind\":\"train\",\"step\":1,\"loss\":1}\n" + line + "\n");
    return error_of<Error>([&] { read_metrics(path); });
  };
  EXPECT_EQ(message("{\"kind\":\"train\""),
            path + ": line 2: not JSON: column 16: unexpected end of input; expected '}'");
  EXPECT_EQ(message("[]"), path + ": line 2: expected a JSON object, got array");
  EXPECT_EQ(message("{\"step\":1}"), path + ": line 2: `kind` is missing");
  EXPECT_EQ(message("{\"kind\":\"train\",\"loss\":1}"), path + ": line 2: `step` is missing");
  EXPECT_EQ(message("{\"kind\":\"train\",\"step\":1}"), path + ": line 2: `loss` is missing");
  EXPECT_EQ(message("{\"kind\":\"eval\",\"step\":1,\"loss_low\":\"x\"}"),
            path + ": line 2: `loss_low`: expected a number, got string");
  EXPECT_EQ(message("{\"kind\":\"resume\",\"step\":1.5}"), path + ": line 2: `step`: expected a whole number, got 1.5");
  EXPECT_EQ(message(std::string(3, '\0')),
            path + ": line 2: not JSON: column 1: unexpected end of input; expected '[', '{', or a literal");
}

TEST(Metrics, AFullDiskStopsNothingAndIsCounted) {
  const TemporaryFolder folder;
  const std::string path = folder.file("m");
  MetricsWriter writer({.path = path});
  {
    const test::FileSizeLimit full(500);
    for (std::int64_t step = 1; step <= 20; ++step) {
      writer.write(line_of(step));
      writer.flush(std::chrono::milliseconds(20));
    }
  }
  writer.write(line_of(21));
  writer.close();
  const Metrics metrics = read_metrics(path);
  EXPECT_FALSE(metrics.torn);
  EXPECT_EQ(metrics.train.size() + writer.dropped(), 21U);
  EXPECT_GT(metrics.train.size(), 2U);
  EXPECT_EQ(metrics.dropped, writer.dropped());
}

// A run that is killed leaves at most a torn last line.
TEST(Metrics, AKilledWriterLeavesWholeLines) {
  const TemporaryFolder folder;
  const std::string path = folder.file("m");
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    MetricsWriter writer({.path = path});
    for (std::int64_t step = 1;; ++step) {
      writer.write(line_of(step));
      ::usleep(50);  // the writing thread must have its turn
    }
  }
  while (content_of(path).size() < 20000) ::usleep(1000);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  const Metrics metrics = read_metrics(path);
  ASSERT_GT(metrics.train.size(), 50U);
  EXPECT_EQ(metrics.train.front().step, 1);
}

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
      "{\"kind\":\"train\",\"step\":1,\"loss\":5.5,\"grad_norm\":\"inf\",\"applied\":false,\"recovered\":2}\n"
      "{\"kind\":\"weather\",\"step\":\"sunny\"}\n"
      "\n"
      "{\"kind\":\"eval\",\"step\":1,\"loss_high\":2.25,\"loss_low\":\"nan\"}\n");
  ASSERT_EQ(metrics.train.size(), 1U);
  EXPECT_EQ(metrics.train[0].step, 1);
  EXPECT_EQ(metrics.train[0].loss, 5.5);
  EXPECT_TRUE(std::isinf(metrics.train[0].grad_norm));
  EXPECT_FALSE(metrics.train[0].applied);
  EXPECT_FALSE(metrics.train[0].seconds.has_value());
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
  const std::string good = "{\"kind\":\"train\",\"step\":1,\"loss\":1}\n";
  for (const auto& entry : std::vector<std::pair<std::string, std::string>>{
           {"{\"kind\":\"train\",\"st\n", "not JSON"},
           {"[1]\n", "expected a JSON object"},
           {"{\"kind\":\"train\"}\n", "`step` is missing"},
           {"{\"kind\":\"train\",\"step\":1.5}\n", "`step`: expected a whole number"},
           {"{\"kind\":\"train\",\"step\":1,\"loss\":\"low\"}\n", "`loss`: expected a number"},
           {"{\"kind\":\"train\",\"step\":1,\"loss\":1,\"applied\":1}\n", "`applied`: expected true or false"},
           {"{\"kind\":7,\"step\":1}\n", "`kind`: expected a string"}}) {
    const std::string message = error_of<Error>([&] { read(good + entry.first + good); });
    EXPECT_NE(message.find(path() + ": line 2: "), std::string::npos) << message;
    EXPECT_NE(message.find(entry.second), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace gnmr::run
