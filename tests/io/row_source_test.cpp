// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/row_source.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>

#include "io/trace_testing.h"

namespace gnmr::io {
namespace {

using testing::read_text;
using testing::Row;

const TraceOptions kRestart{.format = TraceFormat::csv, .allow_restart = true};

std::string csv_of(const std::vector<std::int64_t>& steps) {
  std::string text = "step,a\n";
  for (std::size_t i = 0; i < steps.size(); ++i) text += std::to_string(steps[i]) + "," + std::to_string(i) + "\n";
  return text;
}

// The rule word for word: a step that does not increase drops every earlier row with that step or a later one.
std::vector<Row> naive_restart(const std::vector<std::int64_t>& steps) {
  std::vector<Row> rows;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    std::erase_if(rows, [&](const Row& row) { return row.step >= steps[i]; });
    rows.push_back({steps[i], {static_cast<double>(i)}});
  }
  return rows;
}

TEST(StepOrder, RestartDropsWhatItOvertakes) {
  const auto trace = read_text(csv_of({1, 2, 3, 4, 3, 4, 5}), kRestart);
  EXPECT_EQ(trace.rows, (std::vector<Row>{{1, {0}}, {2, {1}}, {3, {4}}, {4, {5}}, {5, {6}}}));
  EXPECT_EQ(trace.notes, (std::vector<std::string>{"2 rows dropped: the run was resumed from an earlier step"}));
}

TEST(StepOrder, RestartBeforeTheFirstStepDropsAll) {
  EXPECT_EQ(read_text(csv_of({5, 6, 7, 1}), kRestart).rows, (std::vector<Row>{{1, {3}}}));
}

TEST(StepOrder, WithoutRestartNothingChanges) {
  const auto trace = read_text(csv_of({1, 5, 9}), kRestart);
  EXPECT_EQ(trace.rows.size(), 3U);
  EXPECT_TRUE(trace.notes.empty());
}

TEST(StepOrder, RandomRestartsAgreeWithTheRule) {
  std::mt19937 random(11);
  for (int trial = 0; trial < 2000; ++trial) {
    std::vector<std::int64_t> steps;
    std::int64_t step = 0;
    for (std::size_t i = 0; i < random() % 40; ++i) {
      step += random() % 5 == 0 ? -static_cast<std::int64_t>(random() % 12) : static_cast<std::int64_t>(random() % 4);
      steps.push_back(step);
    }
    EXPECT_EQ(read_text(csv_of(steps), kRestart).rows, naive_restart(steps));
  }
}

TEST(StepOrder, AFaultInTheFileEndsTheFirstPassToo) {
  const auto reader = open_trace(memory_byte_source("run", "step,a\n1,0\n2,1\n1,2\nx,3\n0,4\n"), kRestart);
  TraceRow row;
  ASSERT_TRUE(reader->next(row));
  EXPECT_EQ(row.norms[0], 2);
  EXPECT_THROW(reader->next(row), Error);
}

// Like a pipe: three bytes at a time, once.
class OneWaySource final : public ByteSource {
 public:
  explicit OneWaySource(std::string text) : ByteSource("standard input"), text_(std::move(text)) {}

  std::size_t read(std::span<char> into) override {
    const std::size_t count = text_.copy(into.data(), std::min<std::size_t>(into.size(), 3), at_);
    at_ += count;
    return count;
  }

  bool can_rewind() const override { return false; }
  void rewind() override { throw Error("cannot"); }
  std::uint64_t bytes_read() const override { return at_; }
  std::uint64_t bytes_total() const override { return 0; }

 private:
  std::string text_;
  std::size_t at_ = 0;
};

TEST(StepOrder, RestartIsRefusedWhereThereIsNoSecondPass) {
  for (const TraceFormat format : {TraceFormat::csv, TraceFormat::jsonl, TraceFormat::tensorboard}) {
    EXPECT_EQ(testing::message_of([&] {
                open_trace(std::make_unique<OneWaySource>("step,a\n1,2\n"), {.format = format, .allow_restart = true});
              }),
              "standard input: --allow-restart reads a trace twice, which only a file can be");
  }
}

TEST(StepOrder, StreamsThatGiveLittleAtATimeAreRead) {
  const auto csv = open_trace(std::make_unique<OneWaySource>("step,a\n1,2\n2,0.125\n"));
  EXPECT_EQ(testing::read_all(*csv).rows, (std::vector<Row>{{1, {2}}, {2, {0.125}}}));
  const auto jsonl =
      open_trace(std::make_unique<OneWaySource>("{\"step\":1,\"grad_norm\":2}\n{\"step\":2,\"norms\":{\"x\":1}}\n"));
  const auto trace = testing::read_all(*jsonl);
  EXPECT_EQ(trace.units, (std::vector<std::string>{"grad_norm", "norms.x"}));
  EXPECT_EQ(trace.rows, (std::vector<Row>{{1, {2, testing::kNone}}, {2, {testing::kNone, 1}}}));
}

}  // namespace
}  // namespace gnmr::io
