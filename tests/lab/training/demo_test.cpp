// SPDX-License-Identifier: Apache-2.0
// The demo, run for real with fewer steps: faults must cost something, recovery must win most of it back, and far more
// than the preset `paper` does; all by more than one seed's noise (about 0.005 in the loss).
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "apps/program_run.h"

namespace gnmr {
namespace {

constexpr double kSmallestGap = 0.04;     // of the loss: FP8 with faults against high precision
constexpr double kSmallestClosed = 0.8;   // of that gap: FP8 with GNMR
constexpr double kSmallestMargin = 0.3;   // of that gap: more than FP8 with `paper`
constexpr double kSmallestNatural = 0.5;  // of the gap of INT4 activations: INT4 with GNMR
constexpr double kNoise = 0.01;           // of the loss: two runs that are equally good

TEST(Demo, GnmrClosesMostOfTheGapAndPaperDoesNot) {
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
  EXPECT_GT((loss("paper") - loss("gnmr")) / gap, kSmallestMargin) << run.out;
  EXPECT_GT(loss("gnmr"), loss("high") - kNoise) << run.out;
  const double natural_gap = loss("int4") - loss("high");
  EXPECT_GT(natural_gap, kSmallestGap) << run.out;
  EXPECT_GT((loss("int4") - loss("int4-gnmr")) / natural_gap, kSmallestNatural) << run.out;
  for (const char* part : {"worst event: step", "healthy run:", "report.html", "docs/c-api.md", "INJECTED"}) {
    EXPECT_NE((run.out + run.err).find(part), std::string::npos) << part;
  }
}

}  // namespace
}  // namespace gnmr
