// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/truth.h"

#include <gtest/gtest.h>

#include <numeric>

#include "io/trace_testing.h"

namespace gnmr::io {
namespace {

using testing::message_of;

TEST(Truth, ZerosAndOnes) {
  TruthReader truth = open_truth(memory_byte_source("truth", "step,a,b\n1,0,1\n2, 1.0 ,\"0\"\n"));
  EXPECT_EQ(truth.units(), (std::vector<std::string>{"a", "b"}));
  TruthRow row;
  ASSERT_TRUE(truth.next(row));
  EXPECT_EQ(row.step, 1);
  EXPECT_EQ(std::vector<std::uint8_t>(row.faulty.begin(), row.faulty.end()), (std::vector<std::uint8_t>{0, 1}));
  ASSERT_TRUE(truth.next(row));
  EXPECT_EQ(std::vector<std::uint8_t>(row.faulty.begin(), row.faulty.end()), (std::vector<std::uint8_t>{1, 0}));
  EXPECT_FALSE(truth.next(row));
}

TEST(Truth, AnythingElseIsAnError) {
  for (const std::string cell : {"2", "0.5", "", "nan", "x", "-1", "1e400"}) {
    TruthReader truth = open_truth(memory_byte_source("truth", "step,a,b\n1,0," + cell + "\n"));
    TruthRow row;
    EXPECT_EQ(message_of([&] { truth.next(row); }), "truth: line 2, column 3: \"" + cell + "\" is neither 0 nor 1");
  }
  TruthReader truth = open_truth(memory_byte_source("truth", "step,a\n1,0\n1,0\n"));
  TruthRow row;
  EXPECT_TRUE(truth.next(row));
  EXPECT_THROW(truth.next(row), Error);
}

TEST(Truth, RecordedRuns) {
  for (const auto& [kind, faulty] : {std::pair("clean", false), std::pair("bad", false), std::pair("clip", true),
                                     std::pair("over", true), std::pair("gover", true)}) {
    GNMR_NEEDS_DATA(path, "traces/faults/" + std::string(kind) + ".truth.csv");
    TruthReader truth = open_truth(path);
    TruthRow row;
    int rows = 0;
    int ones = 0;
    for (; truth.next(row); ++rows) ones = std::accumulate(row.faulty.begin(), row.faulty.end(), ones);
    EXPECT_EQ(rows, 400);
    EXPECT_EQ(ones > 0, faulty) << kind;
  }
}

}  // namespace
}  // namespace gnmr::io
