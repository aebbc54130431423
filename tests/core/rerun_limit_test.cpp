// SPDX-License-Identifier: Apache-2.0
// The limit on reruns and the doubt (docs/algorithm.md, point 4 of "Report", and "Doubt"): what must hold of any
// demand, and scenes that can be followed by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "core/random_run.h"
#include "core/run_step.h"
#include "gnmr/core/host_gate.h"
#include "gnmr/core/rerun_window.h"

namespace gnmr {
namespace {

using testing::Random;
using testing::run_step;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// Decisions of a window that is asked in each with a probability: 1 had a rerun.
std::vector<int> reruns_of(RerunWindow& window, double demand, Random& random, int decisions) {
  std::vector<int> reruns;
  for (int i = 0; i < decisions; ++i) {
    const bool rerun = random.chance(demand) && window.allows();
    window.add(rerun, Verdict::none);
    reruns.push_back(rerun ? 1 : 0);
  }
  return reruns;
}

int most_in_a_hundred(const std::vector<int>& reruns) {
  int most = 0;
  for (auto last = reruns.begin(); last != reruns.end(); ++last) {
    const auto first = last - std::min<std::ptrdiff_t>(99, last - reruns.begin());
    most = std::max(most, static_cast<int>(std::count(first, last + 1, 1)));
  }
  return most;
}

/// The most decisions from one rerun to the next.
std::ptrdiff_t longest_wait(const std::vector<int>& reruns, std::ptrdiff_t from) {
  std::ptrdiff_t longest = 0;
  auto last = std::find(reruns.begin() + from, reruns.end(), 1);
  for (auto next = last; next != reruns.end(); last = next) {
    next = std::find(last + 1, reruns.end(), 1);
    if (next != reruns.end()) longest = std::max(longest, next - last);
  }
  return longest;
}

TEST(RerunLimit, HoldsInEveryHundredDecisionsWhateverTheDemand) {
  Random random(1);
  for (std::int32_t most = 0; most <= 100; ++most) {
    for (const double demand : {1.0, 0.7, 0.2, 0.03}) {
      RerunWindow window(most);
      const std::vector<int> reruns = reruns_of(window, demand, random, 1000);
      ASSERT_LE(most_in_a_hundred(reruns), most);
      if (demand == 1.0) {
        ASSERT_GE(most_in_a_hundred(reruns), most * 2 / 3) << "the limit was tested";
      }
    }
  }
}

TEST(RerunLimit, UnderAlarmsInEveryStepRerunsAreSpreadAndUsed) {
  Random random(1);
  for (std::int32_t most = 1; most <= 99; ++most) {
    RerunWindow window(most);
    const std::vector<int> reruns = reruns_of(window, 1.0, random, 3000);
    EXPECT_LE(longest_wait(reruns, 0), std::min(100, 1000 / most)) << most;
    EXPECT_LE(longest_wait(reruns, 500), std::min(100, 450 / most)) << most;
    // In the long run nearly the limit; from 20 on at least half of it, so that there is room when trouble changes.
    const auto used = static_cast<double>(std::count(reruns.begin() + 1000, reruns.end(), 1)) / 20;
    EXPECT_GE(used, most <= 20 ? 0.85 * most : 0.5 * most) << most;
  }
  RerunWindow every(100);
  const std::vector<int> reruns = reruns_of(every, 1.0, random, 500);
  EXPECT_EQ(std::count(reruns.begin(), reruns.end(), 1), 500) << "100 is no limit";
}

TEST(RerunLimit, ShortTroubleIsServedAtOnce) {
  RerunWindow window(20);
  for (int i = 0; i < 11; ++i) {
    ASSERT_TRUE(window.allows()) << i;
    window.add(true, Verdict::none);
  }
  EXPECT_FALSE(window.allows()) << "11 of 20 wait for one decision";
  window.add(false, Verdict::none);
  EXPECT_TRUE(window.allows());
  EXPECT_FALSE(window.allows(9)) << "with those to come all are used";
}

TEST(RerunLimit, WhatIsToComeCountsAndHasNoWaitOfItsOwn) {
  const RerunWindow window(3);
  EXPECT_TRUE(window.allows(2));
  EXPECT_FALSE(window.allows(3));
  EXPECT_FALSE(RerunWindow(0).allows());
}

TEST(RerunLimit, AWindowThatIsRestoredGoesOnAlike) {
  Random random(3);
  RerunWindow window(13);
  for (int i = 0; i < 600; ++i) {
    RerunWindow other(13);
    other.restore(window.ago(), window.doubt());
    for (const std::uint32_t to_come : {0U, 1U, 4U}) ASSERT_EQ(other.allows(to_come), window.allows(to_come)) << i;
    window = other;
    const double kind = random.uniform();
    const Verdict verdict = kind < 0.05 ? Verdict::common : kind < 0.07 ? Verdict::numeric : Verdict::unlocated;
    window.add(random.chance(0.5) && window.allows(), verdict);
  }
}

TEST(Doubt, DoublesUpToEightAndEndsAfterAHundredDecisionsOrByANumericVerdict) {
  RerunWindow window(20);
  const auto value_after = [&window](Verdict verdict) {
    window.add(verdict != Verdict::none, verdict);
    return window.doubt().value;
  };
  EXPECT_EQ(value_after(Verdict::unlocated), 1u);
  EXPECT_EQ(value_after(Verdict::common), 2u);
  for (int i = 0; i < 99; ++i) ASSERT_EQ(value_after(i == 50 ? Verdict::unlocated : Verdict::none), 2u) << i;
  EXPECT_EQ(value_after(Verdict::none), 1u) << "it held for a hundred decisions";
  EXPECT_EQ(window.doubt(), Doubt{});
  for (const std::uint32_t expected : {2u, 4u, 8u, 8u}) {
    EXPECT_EQ(value_after(Verdict::common), expected);
    EXPECT_EQ(value_after(Verdict::none), expected);
    EXPECT_EQ(window.doubt().decisions_left, 99u);
  }
  EXPECT_EQ(value_after(Verdict::numeric), 1u);
  EXPECT_EQ(value_after(Verdict::common), 2u);
}

/// What a patrol of all units finds in each step, and the error that is expected; 0: it finds or knows nothing.
struct Patrolled {
  double errors = 0;
  double expected = 0;
};

/// Twelve units in health; risks have a chosen severity: (ratio - 1) / 0.5, as the change is what exceeds its limit.
class DoubtScene : public ::testing::Test {
 protected:
  Controller make(std::uint32_t doubt, Options options, std::int64_t steps = 30, const Patrolled& patrol = {}) {
    std::vector<Unit> units;
    for (std::size_t i = 0; i < kUnits; ++i) units.push_back({.name = "u" + std::to_string(i)});
    Controller controller(units, options, {.can_rerun = true, .sites = 1, .expected_errors = {patrol.expected}});
    const std::vector<double> errors(patrol.errors > 0 ? kUnits : 0, patrol.errors);
    for (std::int64_t step = 1; step <= steps; ++step) {
      run_step(controller, {.step = step, .norms = std::vector<double>(kUnits, 1.0), .errors = errors});
    }
    ControllerState state = controller.save();
    if (doubt > 1) state.doubt = {.value = doubt, .decisions_left = 50};
    controller.restore(state);  // the next step is planned in doubt
    return controller;
  }

  static Options options(Selector selector, std::int32_t max_trials = 20) {
    Options options;
    options.selector = selector;
    options.max_trials = max_trials;
    options.max_o = 5;
    options.noise_factor = 0;
    return options;
  }

  static std::vector<double> risk(UnitIndex unit, double severity) {
    std::vector<double> norms(kUnits, 1.0);
    norms[unit] = 1 + severity / 2;
    return norms;
  }

  static constexpr std::size_t kUnits = 12;
};

TEST_F(DoubtScene, OnlySevererRisksAlarm) {
  for (const std::uint32_t doubt : {1u, 2u, 4u, 8u}) {
    for (const double severity : {1.5, 1.99, 2.01, 3.9, 4.1, 7.9, 8.1, 1e6}) {
      Controller controller = make(doubt, options(Selector::trial));
      const Outcome& outcome = run_step(controller, {.step = 31, .norms = risk(3, severity)});
      const bool counts = doubt == 1 || severity > doubt;
      EXPECT_EQ(testing::wants_trial(outcome), counts) << doubt << ", " << severity;
      EXPECT_EQ(outcome.alarm.risks.size(), 1u) << "the unit is at risk in any doubt";
      if (counts) continue;
      EXPECT_TRUE(!outcome.alarmed && !outcome.dismissed && !outcome.spent);
      EXPECT_TRUE(outcome.decision.admitted.empty() && !outcome.decision.common);
    }
  }
}

TEST_F(DoubtScene, ErrorsAndNormsThatAreNotFiniteAlarmInAnyDoubt) {
  Controller controller = make(8, options(Selector::trial));
  Controller by_error = testing::clone(controller);
  EXPECT_TRUE(testing::wants_trial(run_step(controller, {.step = 31, .norms = risk(3, kNan)})));
  std::vector<double> errors(kUnits, kNan);
  errors[5] = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(testing::wants_trial(
      run_step(by_error, {.step = 31, .norms = std::vector<double>(kUnits, 1.0), .errors = errors})));
}

TEST_F(DoubtScene, ASpentStepAdmitsOnlyWhatCounts) {
  for (const std::uint32_t doubt : {1u, 4u}) {
    Controller controller = make(doubt, options(Selector::trial, 0));
    std::vector<double> norms = risk(3, 6);
    norms[7] = risk(7, 3)[7];
    const Outcome& outcome = run_step(controller, {.step = 31, .norms = norms});
    EXPECT_TRUE(outcome.spent);
    const std::vector<UnitIndex> expected = doubt == 1 ? std::vector<UnitIndex>{3, 7} : std::vector<UnitIndex>{3};
    EXPECT_EQ(std::vector(outcome.decision.admitted.begin(), outcome.decision.admitted.end()), expected);
  }
}

TEST_F(DoubtScene, TheVerdictGoesByAllRisks) {
  Controller controller = make(4, options(Selector::trial));
  run_step(controller, {.step = 31, .norms = risk(3, 20)});
  const Outcome& outcome = run_step(controller, {.step = 31, .norms = risk(3, 1.5)});
  EXPECT_EQ(outcome.verdict, Verdict::common);
  EXPECT_EQ(controller.save().doubt, (Doubt{.value = 8, .decisions_left = 100}));
}

TEST_F(DoubtScene, TheNormsAloneKnowNoDoubt) {
  Controller controller = make(8, options(Selector::norms));
  EXPECT_EQ(run_step(controller, {.step = 31, .norms = risk(3, 1.5)}).decision.admitted.size(), 1u);
}

TEST_F(DoubtScene, InTheFirstDecisionsOnlyWhatIsSevereOrNotFiniteCallsATrial) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::vector<double> calm(kUnits, 1.0);
  std::vector<double> large(kUnits, 0.02);
  large[2] = 0.9;
  std::vector<double> infinite = large;
  infinite[5] = kInfinity;
  for (const std::int64_t steps : {25, 29, 30}) {  // decisions so far; one and a half times warmup_samples are 30
    const bool is_early = steps < 30;
    const auto wants_trial = [&](const std::vector<double>& norms, const std::vector<double>& errors) {
      Controller controller = make(1, options(Selector::trial), steps, {.errors = 0.02, .expected = 0.02});
      const Outcome& outcome = run_step(controller, {.step = steps + 1, .norms = norms, .errors = errors});
      EXPECT_EQ(outcome.findings.empty(), errors.empty()) << "what is found is said in any step";
      return testing::wants_trial(outcome);
    };
    EXPECT_EQ(wants_trial(calm, large), !is_early) << steps;
    EXPECT_TRUE(wants_trial(calm, infinite)) << steps;
    EXPECT_TRUE(wants_trial(risk(3, kNan), {})) << steps;
    EXPECT_EQ(wants_trial(risk(3, 7.9), {}), !is_early) << steps;
    EXPECT_TRUE(wants_trial(risk(3, 8.1), {})) << steps;
  }
  Controller by_errors = make(1, options(Selector::evidence), 25, {.errors = 0.02, .expected = 0.02});
  EXPECT_EQ(run_step(by_errors, {.step = 26, .norms = calm, .errors = large}).decision.admitted.size(), 1U);
}

TEST_F(DoubtScene, GatesOfTheFirstDecisionsAreAsCalm) {
  Options late = options(Selector::trial);
  late.lag = 1;
  Controller controller = make(1, late, 28, {.errors = 0.02, .expected = 0.0});
  for (const std::int64_t step : {29, 30, 31, 32}) {
    const StepPlan& plan = controller.begin(step);
    ASSERT_EQ(plan.hold, HoldRule::for_trial);
    ASSERT_EQ(plan.error_limits.size(), kUnits);
    // The usual error is 0.02, and the floor of a limit 0.1.
    EXPECT_EQ(plan.error_limits[3], step <= 30 ? std::numeric_limits<float>::infinity() : 0.125F) << step;
    EXPECT_EQ(plan.gate_flags[3] & gate_flag::kDoubt, step <= 30 ? gate_flag::kDoubt : 0) << step;
    if (step > 29) controller.report({.step = step - 1, .norms = std::vector<double>(kUnits, 1.0)});
  }
}

TEST_F(DoubtScene, APatrolAlarmsAQuarterAboveTheLimitAndATrialJudgesByTheLimit) {
  const std::vector<double> calm(kUnits, 1.0);
  for (const double error : {0.099, 0.101, 0.124, 0.126}) {
    Controller controller = make(1, options(Selector::trial), 30, {.errors = 0.02, .expected = 0.0});
    std::vector<double> errors(kUnits, 0.02);
    errors[4] = error;
    Controller by_errors = make(1, options(Selector::evidence), 30, {.errors = 0.02, .expected = 0.0});
    EXPECT_EQ(run_step(by_errors, {.step = 31, .norms = calm, .errors = errors}).decision.admitted.empty(),
              error < 0.1);
    const Outcome* outcome = &run_step(controller, {.step = 31, .norms = calm, .errors = errors});
    EXPECT_EQ(outcome->findings.empty(), error < 0.1);
    ASSERT_EQ(testing::wants_trial(*outcome), error > 0.125) << error;
    if (error < 0.125) continue;
    errors[4] = 0.101;
    outcome = &run_step(controller, {.step = 31, .norms = calm, .errors = errors});
    EXPECT_EQ(outcome->verdict, Verdict::numeric);
    EXPECT_EQ(outcome->decision.admitted.size(), 1U);
  }
}

TEST_F(DoubtScene, TheGateGoesByTheDoubtOfThePlan) {
  Options late = options(Selector::trial);
  late.lag = 1;
  for (const std::uint32_t doubt : {1u, 2u, 8u}) {
    Controller controller = make(doubt, late);
    for (const double severity : {1.5, 7.0, 9.0, kNan}) {
      Controller twin = testing::clone(controller);
      HostGate gate(twin);
      const StepPlan& plan = twin.begin(31);
      ASSERT_EQ(plan.hold, HoldRule::for_trial);
      EXPECT_EQ(gate.holds(plan, {.norms = risk(3, severity)}), doubt == 1 || !(severity <= doubt))
          << doubt << ", " << severity;
    }
  }
}

TEST_F(DoubtScene, AGateOfAnotherSelectorKnowsNone) {
  Options late = options(Selector::trial);
  late.lag = 1;
  Controller doubting = make(8, late);
  doubting.begin(31);
  for (const Selector selector : {Selector::trial, Selector::norms}) {
    Options other = late;
    other.selector = selector;
    other.guard = selector == Selector::norms ? Guard::skip : Guard::none;
    Controller controller(doubting.units(), other, doubting.backend());
    controller.restore(doubting.save(), doubting.plan_state());
    HostGate gate(controller);
    const StepPlan& plan = controller.begin(31);
    ASSERT_NE(plan.hold, HoldRule::never);
    EXPECT_EQ(gate.holds(plan, {.norms = risk(3, 1.5)}), selector == Selector::norms);
  }
}

TEST_F(DoubtScene, LastingTroubleThatHighPrecisionSharesHasFewTrialsAndNoAdmissions) {
  Controller controller = make(1, options(Selector::trial));
  int trials = 0;
  for (std::int64_t step = 31; step <= 1030; ++step) {
    const std::vector<double> norms = risk(static_cast<UnitIndex>(step) % kUnits, 3);  // in each step another unit
    const Outcome* outcome = &run_step(controller, {.step = step, .norms = norms});
    if (testing::wants_trial(*outcome)) {
      ++trials;
      outcome = &run_step(controller, {.step = step, .norms = norms});
      ASSERT_EQ(outcome->verdict, Verdict::common);
    }
    ASSERT_TRUE(outcome->decision.recovered.empty()) << step;
  }
  EXPECT_GE(trials, 10) << "it looks again now and then";
  EXPECT_LE(trials, 25);
}

}  // namespace
}  // namespace gnmr
