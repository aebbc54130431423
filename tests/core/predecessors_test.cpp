// SPDX-License-Identifier: Apache-2.0
// Mistakes seen in other programs that watch norms, each with the test that would have caught it.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "core/run_step.h"
#include "gnmr/core/error.h"

namespace gnmr {
namespace {

using testing::norms_controller;
using testing::run_step;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::vector<Unit> plain_units(std::size_t count) {
  std::vector<Unit> units;
  for (std::size_t i = 0; i < count; ++i) units.push_back({.name = "u" + std::to_string(i)});
  return units;
}

// Seen: options listed six times with different defaults.
TEST(Predecessors, AnOptionHasOneDefault) {
  const Options options;
  const Options paper = Options::preset("paper");
  std::set<std::string_view> names;
  for (const OptionSpec& spec : option_specs()) {
    EXPECT_TRUE(names.insert(spec.name).second) << spec.name;
    EXPECT_EQ(spec.get(options), spec.default_value) << spec.name;
    EXPECT_EQ(spec.get(paper), spec.paper_value) << spec.name;
    EXPECT_TRUE(spec.range.contains(spec.default_value)) << spec.name;
    EXPECT_TRUE(spec.range.contains(spec.paper_value)) << spec.name;
  }
  EXPECT_EQ(Options::preset("default"), options);
}

// Seen: a NaN that passes `isfinite(z) && z > limit`, is no alarm, and then poisons the window for ever.
TEST(Predecessors, ANanIsAnAlarmAndLeavesTheHistoryClean) {
  Controller controller = norms_controller(plain_units(4));
  std::vector<double> norms(4, 1.0);
  for (int step = 0; step < 40; ++step) run_step(controller, {.step = step, .norms = norms});
  norms[2] = kNan;
  const Decision& at_nan = run_step(controller, {.step = 40, .norms = norms}).decision;
  ASSERT_EQ(at_nan.admitted.size(), 1u);
  EXPECT_EQ(at_nan.admitted[0], 2u);
  norms[2] = 1.0;
  for (int step = 41; step < 60; ++step) run_step(controller, {.step = step, .norms = norms});
  EXPECT_EQ(controller.signals(2).ratio, 1.0);
  norms[2] = 5.0;  // what it would not see with a poisoned window
  run_step(controller, {.step = 60, .norms = norms});
  EXPECT_EQ(controller.signals(2).risk, RiskKind::rise);
}

// Seen: a NaN before warm-up is swallowed because "there is no history yet".
TEST(Predecessors, ANanInTheVeryFirstStepIsAnAlarm) {
  Controller controller = norms_controller(plain_units(3));
  const std::vector<double> norms{1.0, kNan, 1.0};
  EXPECT_EQ(run_step(controller, {.step = 0, .norms = norms}).decision.admitted.size(), 1u);
}

// Seen: a counter compared with the wrong variable, and no test that calls it. Here: the budget, the lock and the wait
// are each told apart by giving them different values.
TEST(Predecessors, BudgetLockAndWaitAreNotMixedUp) {
  Options options;
  options.max_o = 2;
  options.lock_steps = 3;
  options.max_lock_steps = 0;
  options.cooldown_steps = 5;
  Controller controller = norms_controller(plain_units(12), options);
  std::vector<double> norms(12, 1.0);
  for (int step = 0; step < 40; ++step) run_step(controller, {.step = step, .norms = norms});
  norms[1] = norms[2] = norms[3] = 50.0;
  const Decision& first = run_step(controller, {.step = 40, .norms = norms}).decision;
  EXPECT_EQ(first.recovered.size(), 2u);  // the budget
  EXPECT_EQ(first.denied.size(), 1u);
  std::vector<int> futile_at;
  std::vector<int> readmitted_at;
  for (int step = 41; step < 60; ++step) {
    const Decision& decision = run_step(controller, {.step = step, .norms = norms}).decision;
    for (const UnitIndex unit : decision.futile) {
      if (unit == 3) futile_at.push_back(step);
    }
    for (const UnitIndex unit : decision.admitted) {
      if (unit == 3) readmitted_at.push_back(step);
    }
  }
  ASSERT_FALSE(futile_at.empty());
  ASSERT_FALSE(readmitted_at.empty());
  EXPECT_EQ(futile_at[0], 43);                    // the lock: three steps after step 40
  EXPECT_EQ(readmitted_at[0], futile_at[0] + 5);  // the wait
}

// Seen: a norm test that never tests the clip. Here it is the cap with which a sample enters the mean.
TEST(Predecessors, ASampleBeyondTheCapEntersTheMeanCapped) {
  for (const double norm : {100.0, 0.001}) {
    Controller controller = norms_controller(plain_units(3));
    std::vector<double> norms(3, 1.0);
    for (int step = 0; step < 2000; ++step) run_step(controller, {.step = step, .norms = norms});
    const double mean = controller.save().units[1].mean_sum;  // its weight is 1 by now
    norms[1] = norm;
    run_step(controller, {.step = 2000, .norms = norms});
    const double capped = norm > 1 ? 2.0 * mean : mean / 2.0;
    EXPECT_EQ(controller.save().units[1].mean_sum, 0.9 * mean + (1.0 - 0.9) * capped) << norm;
    EXPECT_NE(capped, norm);
  }
}

// Seen: sizes that do not match read beyond an array.
TEST(Predecessors, AWrongNumberOfNormsIsAnErrorThatSaysSo) {
  Controller controller = norms_controller(plain_units(280));
  const std::vector<double> norms(279, 1.0);
  try {
    run_step(controller, {.step = 5, .norms = norms});
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "[step 5] expected 280 norms, got 279");
  }
}

// Seen: a restart that forgets what it was in the middle of.
TEST(Predecessors, AStateInMidRecoveryIsTakenOverWhole) {
  Options options;
  options.max_o = 1;
  Controller controller = norms_controller(plain_units(12), options);
  std::vector<double> norms(12, 1.0);
  for (int step = 0; step < 40; ++step) run_step(controller, {.step = step, .norms = norms});
  norms[4] = 30.0;
  run_step(controller, {.step = 40, .norms = norms});
  norms[4] = 1.0;
  run_step(controller, {.step = 41, .norms = norms});
  Controller resumed = norms_controller(plain_units(12), options);
  EXPECT_TRUE(resumed.restore(controller.save()).exact());
  EXPECT_EQ(resumed.steps_left(4), controller.steps_left(4));
  EXPECT_EQ(resumed.steps_left(4), 9u);
  EXPECT_EQ(resumed.save(), controller.save());
}

}  // namespace
}  // namespace gnmr
