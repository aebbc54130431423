// SPDX-License-Identifier: Apache-2.0
// The demo, run for real with fewer steps: faults must cost something, and recovery must win some of it back, both by
// far more than one seed's noise (about 0.005 in the loss).
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "apps/program_run.h"

namespace gnmr {
namespace {

constexpr double kSmallestGap = 0.04;     // of the loss: FP8 with faults against high precision
constexpr double kSmallestClosed = 0.15;  // of that gap: FP8 with GNMR

TEST(Demo, HighIsBelowGnmrAndGnmrIsBelowFp8) {
  const testing::Scratch scratch;
  const testing::ProgramRun run =
      testing::run_gnmr("lab demo --steps 240 --jobs 2 --threads 1 --out " + scratch.path("demo"));
  ASSERT_EQ(run.status, 0) << run.out << run.err;
  const auto loss = [&](const std::string& arm) {
    return nlohmann::json::parse(testing::read_file(scratch.path("demo/cells/" + arm + "-seed0.json")))["loss"]
        .get<double>();
  };
  const double gap = loss("low") - loss("high");
  EXPECT_GT(gap, kSmallestGap) << run.out;
  EXPECT_GT((loss("low") - loss("gnmr")) / gap, kSmallestClosed) << run.out;
  EXPECT_GT(loss("gnmr"), loss("high")) << run.out;
  for (const char* part : {"worst event: step", "healthy run:", "report.html", "docs/train.md", "INJECTED"}) {
    EXPECT_NE((run.out + run.err).find(part), std::string::npos) << part;
  }
}

}  // namespace
}  // namespace gnmr
