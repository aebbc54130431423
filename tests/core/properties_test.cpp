// SPDX-License-Identifier: Apache-2.0
// What must hold of every run, whatever the norms.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "core/random_run.h"
#include "core/run_step.h"
#include "gnmr/core/controller.h"
#include "gnmr/core/error.h"

namespace gnmr {
namespace {

using testing::NormArrays;
using testing::norms_controller;
using testing::Random;
using testing::RandomRun;
using testing::run_step;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<Unit> plain_units(std::size_t count) {
  std::vector<Unit> units;
  for (std::size_t i = 0; i < count; ++i) units.push_back({.name = "u" + std::to_string(i)});
  return units;
}

bool holds(std::span<const UnitIndex> units, UnitIndex unit) {
  return std::find(units.begin(), units.end(), unit) != units.end();
}

TEST(Properties, NeverMoreInRecoveryThanUnitsCostAndGroupsAllow) {
  int recoveries = 0;
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    Random random(seed);
    const std::vector<Unit> units = testing::random_units(random, 5 + random.below(40));
    Options options = testing::random_options(random);
    options.max_cost = 0.6;
    Controller controller = norms_controller(units, options);
    RandomRun run(random, units.size());
    for (int step = 0; step < 200; ++step) {
      const NormArrays arrays(run.next());
      const Decision& decision =
          run_step(controller, {.step = step, .norms = arrays.norms, .sampled = arrays.sampled}).decision;
      ASSERT_LE(decision.recovered.size(), controller.max_recovered());
      std::int64_t cost = 0;
      std::map<std::string, int> groups;
      for (const UnitIndex unit : decision.recovered) {
        ASSERT_FALSE(units[unit].forced);
        cost += units[unit].cost;
        if (!units[unit].group.empty()) ++groups[units[unit].group];
        ASSERT_GT(controller.steps_left(unit), 0u);
      }
      ASSERT_EQ(cost, decision.recovered_cost);
      ASSERT_LE(cost, controller.max_recovered_cost());
      for (const auto& [name, count] : groups) {
        ASSERT_TRUE(options.group_max == 0 || count <= options.group_max) << name;
      }
      recoveries += static_cast<int>(decision.admitted.size());
    }
  }
  EXPECT_GT(recoveries, 1000);  // the limits were tested
}

TEST(Properties, NoRecoveryWithoutARiskAndNoneInACommonStep) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    Random random(seed);
    const std::vector<Unit> units = testing::random_units(random, 30);
    Controller controller = norms_controller(units, testing::random_options(random));
    RandomRun run(random, units.size());
    for (int step = 0; step < 200; ++step) {
      const NormArrays arrays(run.next());
      const Outcome& outcome = run_step(controller, {.step = step, .norms = arrays.norms, .sampled = arrays.sampled});
      const std::span<const UnitIndex> risks = outcome.alarm.risks;
      const Decision& decision = outcome.decision;
      for (const UnitIndex unit : decision.admitted) ASSERT_TRUE(holds(risks, unit));
      for (const UnitIndex unit : decision.denied) ASSERT_TRUE(holds(risks, unit));
      ASSERT_TRUE(!decision.common || (decision.admitted.empty() && decision.denied.empty()));
    }
  }
}

TEST(Properties, ARecoveryLastsExactlyItsLock) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Random random(seed);
    Options options = testing::random_options(random);
    options.lag = 0;
    Controller controller = norms_controller(plain_units(20), options);
    RandomRun run(random, 20);
    std::map<UnitIndex, int> release_at;
    for (int step = 0; step < 400; ++step) {
      auto norms = run.next();
      for (auto& norm : norms) {
        if (norm.value_or(0.0) == 0) norm = 1.0;  // with a sample in every step no lock is stretched
      }
      const NormArrays arrays(norms);
      const Decision& decision = run_step(controller, {.step = step, .norms = arrays.norms}).decision;
      std::vector<UnitIndex> due;
      for (const auto& [unit, when] : release_at) {
        if (when == step) due.push_back(unit);
      }
      ASSERT_EQ(due, std::vector<UnitIndex>(decision.released.begin(), decision.released.end()));
      for (const UnitIndex unit : decision.released) release_at.erase(unit);
      for (const UnitIndex unit : decision.admitted) {
        release_at[unit] = step + static_cast<int>(controller.steps_left(unit));
      }
    }
  }
}

/// Closed loop: one unit's low path multiplies its gradient by `factor` for good; in recovery it is right.
double share_in_recovery(double factor, int lag, const Options& base) {
  constexpr std::size_t kUnits = 40;
  constexpr UnitIndex kBad = 17;
  constexpr int kFaultAt = 100;
  constexpr int kSteps = 3000;
  Options options = base;
  options.lag = lag;
  options.max_o = 3;
  Controller controller = norms_controller(plain_units(kUnits), options);
  Random random(static_cast<std::uint64_t>(factor * 1000) + static_cast<std::uint64_t>(lag));
  int recovered = 0;
  for (int step = 0; step < kSteps; ++step) {
    const bool high = controller.begin(step).path[kBad] == kHighPath;
    std::vector<double> norms(kUnits);
    for (double& norm : norms) norm = std::exp(0.05 * random.normal());
    if (step >= kFaultAt && !high) norms[kBad] *= factor;
    if (step >= kFaultAt && high) ++recovered;
    controller.report({.step = step, .norms = norms});
  }
  return static_cast<double>(recovered) / (kSteps - kFaultAt);
}

TEST(Properties, AUnitWhoseLowPathIsWrongForGoodIsInRecoveryNearlyAlways) {
  for (const int lag : {0, 1}) {
    for (const double factor : {1.8, 2.5, 4.0, 8.0, 1.0 / 3, 1.0 / 5, 1.0 / 8}) {
      EXPECT_GE(share_in_recovery(factor, lag, {}), 0.98) << "factor " << factor << ", lag " << lag;
    }
  }
}

TEST(Properties, CalmNoiseIsSeldomARisk) {
  constexpr std::size_t kUnits = 280;
  constexpr int kSteps = 3000;
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    Controller controller = norms_controller(plain_units(kUnits));
    Random random(seed);
    std::size_t risks = 0;
    std::vector<double> norms(kUnits);
    for (int step = 0; step < kSteps; ++step) {
      for (double& norm : norms) norm = std::exp(0.15 * random.normal());
      risks += run_step(controller, {.step = step, .norms = norms}).alarm.risks.size();
    }
    EXPECT_LE(static_cast<double>(risks), 0.001 * kUnits * kSteps) << "seed " << seed;
  }
}

TEST(Properties, ANonFiniteNormOrAZeroNeverChangesAHistory) {
  for (const double odd : {kNan, -kNan, kInfinity, 0.0, -0.0}) {
    for (const int warm_steps : {0, 5, 60, 3000}) {
      Controller controller = norms_controller(plain_units(12));
      Random random(7);
      std::vector<double> norms(12);
      for (int step = 0; step < warm_steps; ++step) {
        for (double& norm : norms) norm = std::exp(0.1 * random.normal());
        run_step(controller, {.step = step, .norms = norms});
      }
      const UnitState before = controller.save().units[5];
      norms.assign(12, 1.0);
      norms[5] = odd;
      run_step(controller, {.step = warm_steps, .norms = norms});
      const UnitState after = controller.save().units[5];
      EXPECT_EQ(before.samples, after.samples);
      EXPECT_EQ(before.mean_sum, after.mean_sum);
      EXPECT_EQ(before.rise_change_sum, after.rise_change_sum);
      EXPECT_EQ(before.fall_change_sum, after.fall_change_sum);
      EXPECT_EQ(before.ratios, after.ratios);
      EXPECT_EQ(before.inverses, after.inverses);
    }
  }
}

TEST(Properties, ANegativeNormIsAnErrorAndNothingChanges) {
  Controller controller = norms_controller(plain_units(9));
  std::vector<double> norms(9, 1.0);
  for (int step = 0; step < 30; ++step) run_step(controller, {.step = step, .norms = norms});
  const ControllerState before = controller.save();
  for (const double bad : {-1.0, -1e-300, -kInfinity}) {
    norms[8] = bad;
    try {
      run_step(controller, {.step = 30, .norms = norms});
      ADD_FAILURE() << "no error for " << bad;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("[step 30]"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("u8"), std::string::npos) << error.what();
    }
    EXPECT_EQ(controller.save(), before);
  }
  norms[8] = 1.0;
  run_step(controller, {.step = 30, .norms = norms});  // and it goes on
}

// The centre is a sum of integers: whoever adds the units up, in whatever order, gets the same decisions.
TEST(Properties, TheOrderOfUnitsDoesNotMatter) {
  constexpr std::size_t kUnits = 53;
  Random random(3);
  std::vector<std::size_t> order(kUnits);
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t i = kUnits - 1; i > 0; --i) std::swap(order[i], order[random.below(i + 1)]);
  std::vector<Unit> shuffled(kUnits);
  for (std::size_t i = 0; i < kUnits; ++i) shuffled[i].name = "u" + std::to_string(order[i]);
  Options options;
  options.max_o = 1000;  // with room for all, ties between units do not matter either
  Controller one = norms_controller(plain_units(kUnits), options);
  Controller other = norms_controller(shuffled, options);
  RandomRun run(random, kUnits);
  for (int step = 0; step < 500; ++step) {
    const NormArrays arrays(run.next());
    NormArrays moved = arrays;
    for (std::size_t i = 0; i < kUnits; ++i) {
      moved.norms[i] = arrays.norms[order[i]];
      moved.sampled[i] = arrays.sampled[order[i]];
    }
    const Decision& a = run_step(one, {.step = step, .norms = arrays.norms, .sampled = arrays.sampled}).decision;
    const Decision& b = run_step(other, {.step = step, .norms = moved.norms, .sampled = moved.sampled}).decision;
    std::vector<UnitIndex> mapped;
    for (const UnitIndex unit : b.recovered) mapped.push_back(static_cast<UnitIndex>(order[unit]));
    std::sort(mapped.begin(), mapped.end());
    ASSERT_EQ(mapped, std::vector<UnitIndex>(a.recovered.begin(), a.recovered.end())) << "step " << step;
  }
}

}  // namespace
}  // namespace gnmr
