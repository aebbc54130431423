// SPDX-License-Identifier: Apache-2.0
// Single sentences of docs/algorithm.md by hand, for the naive second implementation.
#include "naive_controller.h"

#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace gnmr::naive {
namespace {

using Norm = std::optional<double>;
using Norms = std::vector<Norm>;
using Indices = std::vector<std::size_t>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kMax = std::numeric_limits<double>::max();

// Powers of two keep the hand arithmetic exact.

std::vector<Unit> plain_units(std::size_t count) {
  std::vector<Unit> units;
  for (std::size_t index = 0; index < count; ++index) {
    units.push_back({.name = "u" + std::to_string(index), .cost = 1, .group = "", .forced = false});
  }
  return units;
}

// Histories without decay (beta = 0: the mean is the last sample), no learnt noise, warm after one sample.
Options simple_options() {
  Options options;
  options.beta = 0;
  options.noise_factor = 0;
  options.noise_beta = 0.5;
  options.mean_cap = 0;
  options.warmup_samples = 1;
  options.window = 1;
  options.common_share = 1;
  options.lock_steps = 2;
  options.max_lock_steps = 0;
  options.cooldown_steps = 0;
  options.max_o = 1;
  return options;
}

Norms all(std::size_t count, double norm) { return Norms(count, Norm(norm)); }

TEST(NaiveOptions, RangesOfTheTable) {
  const auto rejects = [](auto member, auto value) {
    Options options;
    options.*member = value;
    EXPECT_THROW(Controller(plain_units(1), options), std::invalid_argument) << value;
  };
  const auto accepts = [](auto member, auto value) {
    Options options;
    options.*member = value;
    EXPECT_NO_THROW(Controller(plain_units(1), options)) << value;
  };
  const std::int64_t too_large = std::int64_t{1} << 31;
  for (const auto member : {&Options::beta, &Options::noise_beta}) {
    rejects(member, -0.1), rejects(member, 1.0), rejects(member, kNan), accepts(member, 0.0);
  }
  rejects(&Options::tau, 0.99), rejects(&Options::tau, kInf), accepts(&Options::tau, 1.0);
  rejects(&Options::delta_tau, 0.0), rejects(&Options::delta_tau, 9e-7), accepts(&Options::delta_tau, 1e-6);
  rejects(&Options::fall_tau, 9e-7), rejects(&Options::fall_tau, -1.0), accepts(&Options::fall_tau, 0.0);
  rejects(&Options::baseline, 1.1), rejects(&Options::baseline, -0.1), accepts(&Options::baseline, 0.5);
  rejects(&Options::window, 0), rejects(&Options::window, 1025), accepts(&Options::window, 1024);
  rejects(&Options::noise_factor, -1.0), rejects(&Options::noise_factor, kInf), accepts(&Options::noise_factor, 0.0);
  rejects(&Options::mean_cap, 1.0), rejects(&Options::mean_cap, 0.5), accepts(&Options::mean_cap, 1.01);
  rejects(&Options::warmup_samples, 0), rejects(&Options::warmup_samples, too_large);
  rejects(&Options::common_share, 0.0), rejects(&Options::common_share, 1.1), accepts(&Options::common_share, 1.0);
  rejects(&Options::lock_steps, 0), rejects(&Options::lock_steps, too_large),
      accepts(&Options::lock_steps, too_large - 1);
  rejects(&Options::max_lock_steps, -1), rejects(&Options::cooldown_steps, -1), rejects(&Options::group_max, -1);
  rejects(&Options::max_o, 2.5), rejects(&Options::max_o, -1.0), rejects(&Options::max_o, kNan),
      rejects(&Options::max_o, 0x1p31);
  accepts(&Options::max_o, 0.0), accepts(&Options::max_o, 0.99), accepts(&Options::max_o, 0x1p31 - 1);
  rejects(&Options::max_cost, 0.0), rejects(&Options::max_cost, 1.1),
      rejects(&Options::max_cost, 0.5);  // 0.5: no unit fits
  rejects(&Options::lag, 2), accepts(&Options::lag, 1);
  Options options;
  options.lag = 1;
  options.lock_steps = 1;
  EXPECT_THROW(Controller(plain_units(1), options), std::invalid_argument);
}

TEST(NaiveOptions, CostsAndNames) {
  const Options options;
  EXPECT_THROW(Controller({{.name = "a", .cost = 0, .group = "", .forced = false}}, options), std::invalid_argument);
  EXPECT_THROW(Controller({{.name = "", .cost = 1, .group = "", .forced = false}}, options), std::invalid_argument);
  std::vector<Unit> units = plain_units(2);
  units[0].cost = std::int64_t{1} << 53;
  EXPECT_THROW(Controller(units, options), std::invalid_argument);
  units[1].forced = true;  // counts in no cost
  EXPECT_EQ(Controller(units, options).cost_limit(), std::int64_t{1} << 53);
  units[1].name = units[0].name;
  EXPECT_THROW(Controller(units, options), std::invalid_argument);
  EXPECT_NO_THROW(Controller({}, options));
}

TEST(NaiveOptions, Limits) {
  Options options;
  options.max_o = 0.29;
  EXPECT_EQ(Controller(plain_units(100), options).max_units(), 28);  // 0.29 * 100 is 28.999... in double
  EXPECT_EQ(Controller(plain_units(3), options).max_units(), 1);
  options.max_cost = 0.35;
  EXPECT_EQ(Controller(plain_units(10), options).cost_limit(), 3);
  std::vector<Unit> units = plain_units(10);
  for (std::size_t index = 0; index < 7; ++index) {
    units[index].forced = true;
  }
  EXPECT_EQ(Controller(units, options).cost_limit(), 1);
}

TEST(NaiveSignals, FirstSample) {
  Options options;
  options.beta = 0.75;
  Controller controller(plain_units(1), options);
  const Decision decision = controller.step({8.0});
  EXPECT_EQ(decision.centre, 1);
  EXPECT_TRUE(decision.signals[0].sampled);
  EXPECT_EQ(decision.signals[0].ratio, 1.0);
  EXPECT_EQ(decision.signals[0].delta, std::nullopt);
  EXPECT_EQ(decision.signals[0].fall, std::nullopt);
  EXPECT_EQ(controller.k(0), 1);
  EXPECT_EQ(controller.m(0), 2.0);  // 0.25 * 8
  EXPECT_EQ(controller.p(0), 0.75);
  EXPECT_EQ(controller.w(0), 1.0);
  EXPECT_EQ(controller.ratios(0), std::vector<double>{1.0});
  EXPECT_EQ(controller.inverses(0), std::vector<double>{1.0});
}

TEST(NaiveSignals, RatioDeltaFallAndCentre) {
  Options options = simple_options();
  options.fall_tau = 0.5;
  Controller controller(plain_units(3), options);
  controller.step({1.0, 1.0, std::nullopt});
  // Ratios 4 (2 in the centre) and 0.5; the third unit has k = 0 and is not in the centre.
  const Decision decision = controller.step({4.0, 0.5, 7.0});
  EXPECT_EQ(decision.centre, 1.25);
  EXPECT_EQ(decision.signals[0].ratio, 4.0);
  EXPECT_EQ(decision.signals[0].delta, 3.0);
  EXPECT_EQ(decision.signals[0].fall, 0.3125 - 1);
  EXPECT_EQ(decision.signals[0].severity, 6.0);  // 3 / 0.5
  EXPECT_EQ(decision.signals[0].kind, RiskKind::rise);
  EXPECT_EQ(decision.signals[1].ratio, 0.5);
  EXPECT_EQ(decision.signals[1].delta, -0.5);
  EXPECT_EQ(decision.signals[1].fall, 1.5);      // 1.25 / 0.5 - 1
  EXPECT_EQ(decision.signals[1].severity, 3.0);  // 1.5 / 0.5
  EXPECT_EQ(decision.signals[1].kind, RiskKind::fall);
  EXPECT_EQ(decision.signals[2].ratio, 1.0);
  EXPECT_FALSE(decision.signals[2].at_risk);
  EXPECT_EQ(decision.admitted, Indices{0});
  EXPECT_EQ(decision.denied, Indices{1});
}

TEST(NaiveSignals, CentreCutsToTwentyBits) {
  Options options = simple_options();
  Controller controller(plain_units(1), options);
  controller.step({3.0});
  EXPECT_EQ(controller.step({2.0}).centre, 699050.0 / 1048576.0);  // floor(2^21 / 3), 699050.67
}

TEST(NaiveSignals, BaselineMakesAReturnNoRise) {
  for (const double baseline : {1.0, 0.0}) {
    Options options = simple_options();
    options.fall_tau = 0;
    options.baseline = baseline;
    options.beta = 0.75;
    Controller controller(plain_units(1), options);
    controller.step({1.0});
    controller.step({0.25});  // ratio 0.25 is the kept one
    // m = 0.25, p = 0.5625: mean 4 / 7, ratio 1.3125. From 1 that is 0.3125, from the kept 0.25 it is more than
    // delta_tau.
    const Decision decision = controller.step({0.75});
    EXPECT_DOUBLE_EQ(*decision.signals[0].ratio, 1.3125);
    EXPECT_EQ(decision.signals[0].at_risk, baseline == 0.0);
  }
}

TEST(NaiveSignals, RatioAndInverseAreBounded) {
  Options options = simple_options();
  Controller controller(plain_units(2), options);
  controller.step({1e-300, kMax});
  const Decision decision = controller.step({kMax, 5e-324});
  EXPECT_EQ(decision.signals[0].ratio, 1e30);
  EXPECT_EQ(decision.signals[1].ratio, 0.0);  // the quotient underflows
  EXPECT_EQ(decision.centre, 1.0);
  EXPECT_EQ(decision.signals[1].fall, 1e30 - 1);
}

TEST(NaiveSignals, NonFiniteIsARiskBeforeWarmUpAndChangesNoHistory) {
  Controller controller(plain_units(3), Options{});
  const Decision decision = controller.step({kNan, -kNan, kInf});
  for (std::size_t unit = 0; unit < 3; ++unit) {
    EXPECT_TRUE(decision.signals[unit].at_risk);
    EXPECT_EQ(decision.signals[unit].kind, RiskKind::non_finite);
    EXPECT_EQ(decision.signals[unit].ratio, kInf);
    EXPECT_EQ(decision.signals[unit].severity, kInf);
    EXPECT_EQ(decision.signals[unit].delta, std::nullopt);
    EXPECT_EQ(controller.k(unit), 0);
  }
  EXPECT_EQ(decision.admitted, Indices{2});  // ties: highest index first
  EXPECT_EQ(decision.denied, (Indices{0, 1}));
}

TEST(NaiveSignals, NegativeNormChangesNothing) {
  Options options = simple_options();
  Controller controller(plain_units(2), options);
  controller.step({1.0, kNan});
  EXPECT_EQ(controller.steps_left(1), 2);
  EXPECT_THROW(controller.step({2.0, -1.0}), std::invalid_argument);
  EXPECT_THROW(controller.step({2.0, -kInf}), std::invalid_argument);
  EXPECT_EQ(controller.k(0), 1);
  EXPECT_EQ(controller.m(0), 1.0);
  EXPECT_EQ(controller.steps_left(1), 2);
  EXPECT_NO_THROW(controller.step({2.0, -0.0}));
}

TEST(NaiveSignals, ZeroIsNoSampleUntilWarm) {
  Options options = simple_options();
  options.warmup_samples = 2;
  options.fall_tau = 0.5;
  Controller controller(plain_units(1), options);
  EXPECT_FALSE(controller.step({0.0}).signals[0].sampled);
  controller.step({1.0});
  EXPECT_FALSE(controller.step({0.0}).signals[0].sampled);
  controller.step({1.0});
  const Decision decision = controller.step({-0.0});
  EXPECT_TRUE(decision.signals[0].at_risk);
  EXPECT_EQ(decision.signals[0].kind, RiskKind::fall);
  EXPECT_EQ(decision.signals[0].ratio, std::nullopt);
  EXPECT_EQ(decision.signals[0].severity, 2e30);
  EXPECT_EQ(controller.k(0), 2);

  options.fall_tau = 0;
  Controller without_fall(plain_units(1), options);
  without_fall.step({1.0});
  without_fall.step({1.0});
  EXPECT_FALSE(without_fall.step({0.0}).signals[0].sampled);
}

TEST(NaiveSignals, UsualChangeIsCutBeforeWarmUpAndSkipsRisksAfter) {
  Options options = simple_options();
  options.warmup_samples = 2;
  options.noise_factor = 8;
  options.fall_tau = 0.75;
  Controller controller(plain_units(1), options);
  controller.step({1.0});
  controller.step({4.0});            // change 3 enters as 0.5; centre 2, inverse 0.5: fall_change 0.5
  EXPECT_EQ(controller.q(0), 0.25);  // 0.5 * 0.5
  EXPECT_EQ(controller.f(0), 0.25);
  EXPECT_EQ(controller.w(0), 0.5);
  // Warm: noise 0.5, so limit is 5 and delta_limit 4. Ratio 32: at risk, nothing enters.
  const Decision decision = controller.step({128.0});
  EXPECT_EQ(decision.signals[0].severity, 7.0);  // max(32 / 5, (32 - 4) / 4)
  EXPECT_TRUE(decision.signals[0].at_risk);
  EXPECT_EQ(controller.q(0), 0.25);
  EXPECT_EQ(controller.w(0), 0.5);
  // A gradient that is gone is measured by the learnt limit too: fall_noise 0.5, fall_limit 4.
  EXPECT_EQ(controller.step({0.0}).signals[0].severity, 1e30 / 4);
}

TEST(NaiveSignals, FallSwitchedOffLearnsNoFallChange) {
  Options options = simple_options();
  options.fall_tau = 0;
  Controller controller(plain_units(2), options);
  controller.step({4.0, 4.0});
  const Decision decision = controller.step({3.0, 4.0});
  EXPECT_EQ(decision.signals[0].severity, 0.375);  // 0.75 / 2, and no share of the fall
  EXPECT_EQ(controller.q(0), 0.125);               // 0.5 * 0.25
  EXPECT_EQ(controller.f(0), 0);                   // though the inverse is 0.875 / 0.75
}

TEST(NaiveSignals, AFallThatOnlyEqualsTheRiseIsARise) {
  Options options = simple_options();
  options.baseline = 0;
  options.fall_tau = 0.125;
  Controller controller(plain_units(1), options);
  controller.step({1.0});
  controller.step({8.0});  // ratio 8, centre 2, inverse 0.25
  // Ratio 4, centre 2, inverse 0.5: ratio / limit = 4 / 2, fall / fall_limit = 0.25 / 0.125.
  const Decision decision = controller.step({32.0});
  EXPECT_EQ(decision.signals[0].fall, 0.25);
  EXPECT_EQ(decision.signals[0].severity, 2.0);
  EXPECT_EQ(decision.signals[0].kind, RiskKind::rise);
}

TEST(NaiveSignals, RobustHistory) {
  Options options = simple_options();
  options.mean_cap = 2;
  options.window = 2;
  options.fall_tau = 0;
  Controller controller(plain_units(1), options);
  controller.step({1.0});
  EXPECT_TRUE(controller.step({64.0}).signals[0].at_risk);
  EXPECT_EQ(controller.m(0), 2.0);  // at most twice the mean
  EXPECT_EQ(controller.ratios(0), std::vector<double>{1.0});
  EXPECT_EQ(controller.k(0), 2);
  controller.step({0.5});
  EXPECT_EQ(controller.m(0), 1.0);  // at least half the mean
  EXPECT_EQ(controller.ratios(0), (std::vector<double>{1.0, 0.25}));
  controller.step({1.0});
  EXPECT_EQ(controller.ratios(0), (std::vector<double>{0.25, 1.0}));
}

TEST(NaiveSignals, SmallWeightsBecomeZero) {
  Options options;
  options.beta = 0.5;
  options.noise_beta = 0.5;
  Controller controller(plain_units(1), options);
  for (int sample = 0; sample < 60; ++sample) {
    controller.step({1.0});
  }
  EXPECT_EQ(controller.p(0), 0x1p-60);  // not below
  EXPECT_EQ(controller.w(0), 0x1p-59);
  controller.step({1.0});
  EXPECT_EQ(controller.p(0), 0);
  EXPECT_EQ(controller.w(0), 0x1p-60);
  controller.step({1.0});
  EXPECT_EQ(controller.w(0), 0);
}

TEST(NaiveDecision, LockReleaseAndReadmission) {
  Options options = simple_options();
  options.lock_steps = 3;
  options.max_lock_steps = 10;
  Controller controller(plain_units(1), options);
  EXPECT_EQ(controller.step({kNan}).admitted, Indices{0});
  EXPECT_EQ(controller.step({kNan}).recovered, Indices{0});  // a risk in recovery is neither denied nor prolongs it
  EXPECT_EQ(controller.step({kNan}).denied, Indices{});
  const Decision decision = controller.step({kNan});
  EXPECT_EQ(decision.released, Indices{0});
  EXPECT_EQ(decision.admitted, Indices{0});
  EXPECT_EQ(controller.last_lock(0), 6);
  for (int step = 0; step < 6; ++step) {
    controller.step({kNan});
  }
  EXPECT_EQ(controller.last_lock(0), 10);  // min(12, max_lock_steps)
}

TEST(NaiveDecision, RelapseIsCountedInSamples) {
  for (const int samples_between : {2, 3}) {
    Options options = simple_options();
    options.lock_steps = 3;
    options.max_lock_steps = 10;
    Controller controller(plain_units(1), options);
    controller.step({kNan});
    for (int step = 0; step < 3; ++step) {
      controller.step({1.0});
    }
    EXPECT_FALSE(controller.in_recovery(0));
    for (int step = 0; step < samples_between; ++step) {
      controller.step({1.0});
      controller.step({std::nullopt});
    }
    controller.step({kNan});  // itself the third or fourth sample
    EXPECT_EQ(controller.last_lock(0), samples_between == 2 ? 6 : 3);
  }
}

TEST(NaiveDecision, LastStepIsKeptUntilASample) {
  Options options = simple_options();
  options.max_lock_steps = 5;
  Controller sampled(plain_units(1), options);
  sampled.step({kNan});
  for (int step = 0; step < 3; ++step) {
    EXPECT_EQ(sampled.step({std::nullopt}).recovered, Indices{0});
  }
  EXPECT_EQ(sampled.step({1.0}).released, Indices{0});  // step 4

  Controller never_sampled(plain_units(1), options);
  never_sampled.step({kNan});
  for (int step = 0; step < 4; ++step) {
    EXPECT_EQ(never_sampled.step({std::nullopt}).recovered, Indices{0});
  }
  EXPECT_EQ(never_sampled.step({std::nullopt}).released, Indices{0});  // step 5
}

TEST(NaiveDecision, FutileRecoveryWaits) {
  Options options = simple_options();
  options.cooldown_steps = 3;
  Controller controller(plain_units(1), options);
  controller.step({kNan});
  controller.step({kNan});
  const Decision decision = controller.step({kNan});
  EXPECT_EQ(decision.released, Indices{0});
  EXPECT_EQ(decision.futile, Indices{0});
  EXPECT_EQ(controller.wait(0), 3);
  EXPECT_EQ(decision.denied, Indices{});  // waiting: no candidate
  EXPECT_EQ(controller.step({kNan}).admitted, Indices{});
  EXPECT_EQ(controller.step({kNan}).admitted, Indices{});
  EXPECT_EQ(controller.step({kNan}).admitted, Indices{0});
}

TEST(NaiveDecision, ARiskOfAnotherKindIsNotFutile) {
  Options options = simple_options();
  options.cooldown_steps = 3;
  Controller controller(plain_units(1), options);
  controller.step({1.0});
  EXPECT_EQ(controller.step({kNan}).admitted, Indices{0});
  controller.step({1.0});
  const Decision decision = controller.step({8.0});
  EXPECT_EQ(decision.signals[0].kind, RiskKind::rise);
  EXPECT_EQ(decision.released, Indices{0});
  EXPECT_EQ(decision.futile, Indices{});
  EXPECT_EQ(decision.admitted, Indices{0});
}

TEST(NaiveDecision, ZerosAfterAFutileZeroAreNoSamplesUntilANumber) {
  Options options = simple_options();
  options.cooldown_steps = 1;
  Controller controller(plain_units(1), options);
  controller.step({1.0});
  EXPECT_EQ(controller.step({0.0}).admitted, Indices{0});
  controller.step({0.0});
  EXPECT_EQ(controller.step({0.0}).futile, Indices{0});
  EXPECT_TRUE(controller.zeros_ignored(0));
  EXPECT_FALSE(controller.step({0.0}).signals[0].sampled);
  EXPECT_EQ(controller.step({kNan}).admitted, Indices{0});
  controller.step({kNan});
  EXPECT_EQ(controller.step({kNan}).futile, Indices{0});
  EXPECT_FALSE(controller.step({0.0}).signals[0].sampled);  // a NaN is not a finite norm
  controller.step({1.0});
  EXPECT_TRUE(controller.step({0.0}).signals[0].at_risk);
}

TEST(NaiveDecision, CommonNeedsTenUnits) {
  Options options = simple_options();
  options.common_share = 0.5;
  options.fall_tau = 0;
  for (const std::size_t count : {std::size_t{9}, std::size_t{10}}) {
    Controller controller(plain_units(count), options);
    EXPECT_EQ(controller.step(all(count, kNan)).common, count == 10);
    controller.step(all(count, 1.0));
    EXPECT_EQ(controller.step(all(count, 8.0)).common, count == 10);
  }
  // Exactly the share is not common; a non-finite norm is no risk among the finite ones.
  Controller controller(plain_units(11), options);
  controller.step(all(11, 1.0));
  Norms norms = all(11, 1.0);
  for (std::size_t unit = 0; unit < 5; ++unit) {
    norms[unit] = 8.0;
  }
  norms[10] = kNan;
  const Decision decision = controller.step(norms);
  EXPECT_FALSE(decision.common);
  EXPECT_EQ(decision.admitted, Indices{10});
}

TEST(NaiveDecision, ZerosAreFiniteInCommon) {
  Options options = simple_options();
  options.common_share = 0.9;
  Controller controller(plain_units(10), options);
  controller.step(all(10, 1.0));
  EXPECT_TRUE(controller.step(all(10, 0.0)).common);
}

TEST(NaiveDecision, CostAndGroupAndForced) {
  Options options = simple_options();
  options.max_o = 5;
  options.max_cost = 0.5;
  options.group_max = 1;
  std::vector<Unit> units = plain_units(6);
  units[4].cost = 7;  // total 11 without the forced unit, limit 5: never fits
  units[3].group = units[2].group = "a";
  units[5].forced = true;
  Controller controller(units, options);
  const Decision decision = controller.step(all(6, kNan));
  EXPECT_EQ(controller.cost_limit(), 5);
  EXPECT_EQ(decision.admitted, (Indices{0, 1, 3}));
  EXPECT_EQ(decision.denied, (Indices{2, 4}));
  EXPECT_TRUE(decision.signals[5].at_risk);
}

TEST(NaiveDecision, MaxOZeroDeniesAll) {
  Options options = simple_options();
  options.max_o = 0;
  Controller controller(plain_units(2), options);
  const Decision decision = controller.step({kNan, kNan});
  EXPECT_EQ(decision.admitted, Indices{});
  EXPECT_EQ(decision.denied, (Indices{0, 1}));
}

}  // namespace
}  // namespace gnmr::naive
