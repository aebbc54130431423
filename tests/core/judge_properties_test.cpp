// SPDX-License-Identifier: Apache-2.0
// What must hold of every judged run, whatever norms and errors come.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "core/random_errors.h"
#include "core/random_run.h"
#include "gnmr/core/error.h"
#include "gnmr/core/judge.h"

namespace gnmr {
namespace {

using testing::NormArrays;
using testing::Random;
using testing::RandomErrors;
using testing::RandomRun;

std::vector<UnitIndex> copy(std::span<const UnitIndex> units) { return {units.begin(), units.end()}; }

bool holds(const std::vector<UnitIndex>& units, UnitIndex unit) {
  return std::find(units.begin(), units.end(), unit) != units.end();
}

/// A step of a run, as it ended.
struct Step {
  Hearing hearing;
  Ruling ruling;
  bool rerun = false;
  std::vector<UnitIndex> before;  // in recovery
};

/// A judge of random units and options that can run a step again, with its norms and errors.
class JudgedRun {
 public:
  explicit JudgedRun(std::uint64_t seed)
      : random_(seed),
        units_(testing::random_units(random_, 3 + random_.below(30))),
        judge_(units_, options(random_), {.places = kPlaces, .expected = {0.02, 0.0}, .can_rerun = true}),
        norms_(random_, units_.size()),
        errors_(random_, units_.size(), kPlaces) {}

  Judge& judge() { return judge_; }
  const std::vector<Unit>& units() const { return units_; }

  Step take(int number) {
    Step step{.hearing = {}, .ruling = {}, .rerun = false, .before = recovered_};
    const NormArrays arrays(norms_.next());
    const Observation observation{.step = number, .norms = arrays.norms, .sampled = arrays.sampled};
    step.hearing = judge_.hear(observation, errors_.patrol());
    if (step.hearing.action == Action::trial && !random_.chance(0.1)) {
      const NormArrays again(norms_.next());
      step.ruling = judge_.conclude({.step = number, .norms = again.norms, .sampled = again.sampled}, errors_.trial());
    } else {
      step.ruling = judge_.decide();
    }
    step.rerun = step.hearing.action == Action::trial || step.ruling.action == Action::replay;
    recovered_ = copy(step.ruling.decision.recovered);
    return step;
  }

 private:
  static constexpr std::uint32_t kPlaces = 2;

  static Options options(Random& random) {
    Options options = testing::random_options(random);
    options.max_cost = 1;
    return options;
  }

  Random random_;
  std::vector<Unit> units_;
  Judge judge_;
  RandomRun norms_;
  RandomErrors errors_;
  std::vector<UnitIndex> recovered_;
};

TEST(JudgeProperties, NeverMoreRerunsInAHundredStepsThanTheCap) {
  int most_used = 0;
  for (std::uint64_t seed = 0; seed < 120; ++seed) {
    JudgedRun run(seed);
    const int cap = run.judge().controller().options().max_trials;
    std::vector<int> reruns;
    for (int step = 0; step < 400; ++step) {
      reruns.push_back(run.take(step).rerun ? 1 : 0);
      const auto first = reruns.end() - std::min<std::ptrdiff_t>(100, std::ssize(reruns));
      const int used = static_cast<int>(std::count(first, reruns.end(), 1));
      ASSERT_LE(used, cap) << "seed " << seed << ", step " << step;
      if (cap == 20) most_used = std::max(most_used, used);
    }
  }
  EXPECT_EQ(most_used, 20);  // the cap was tested
}

TEST(JudgeProperties, OneDecisionAStepWithinTheBudgetAndNobodyTwice) {
  int admissions = 0;
  for (std::uint64_t seed = 200; seed < 320; ++seed) {
    JudgedRun run(seed);
    for (int number = 0; number < 250; ++number) {
      const Step step = run.take(number);
      const Decision& decision = step.ruling.decision;
      ASSERT_EQ(run.judge().controller().decisions(), static_cast<std::uint64_t>(number) + 1);
      ASSERT_THROW(run.judge().decide(), Error);
      ASSERT_THROW(run.judge().conclude({}, {}), Error);
      ASSERT_LE(decision.recovered.size(), run.judge().controller().max_recovered());
      ASSERT_NE(step.ruling.action, Action::trial);
      const bool by_errors = step.ruling.verdict == Verdict::numeric;
      for (const UnitIndex unit : decision.admitted) {
        ASSERT_FALSE(run.units()[unit].forced);
        ASSERT_TRUE(!holds(step.before, unit) || (!by_errors && holds(copy(decision.released), unit)));
        ASSERT_FALSE(step.hearing.dismissed) << "a dismissed alarm admits nobody";
        ASSERT_TRUE(!by_errors || holds(copy(step.ruling.units), unit));
        ++admissions;
      }
      ASSERT_TRUE(!decision.common || decision.admitted.empty());
      for (const UnitIndex unit : step.ruling.units) ASSERT_FALSE(holds(step.before, unit));
    }
  }
  EXPECT_GT(admissions, 1000);
}

TEST(JudgeProperties, ByNormsAndWithoutAGuardItIsThePlainController) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Random random(seed);
    const std::vector<Unit> units = testing::random_units(random, 20);
    Options options = testing::random_options(random);
    options.selector = random.chance(0.5) ? Selector::norms : Selector::automatic;  // it cannot run a step again
    options.guard = Guard::none;
    options.max_cost = 1;
    Judge judge(units, options, {.places = 3});
    EXPECT_EQ(judge.selector(), Selector::norms);
    Controller controller(units, options);
    RandomRun run(random, units.size());
    RandomErrors errors(random, units.size(), 3);
    for (int step = 0; step < 250; ++step) {
      const NormArrays arrays(run.next());
      const Observation observation{.step = step, .norms = arrays.norms, .sampled = arrays.sampled};
      const Hearing& hearing = judge.hear(observation, errors.patrol());
      ASSERT_EQ(hearing.action, Action::proceed);
      ASSERT_TRUE(hearing.clip.empty() && !hearing.spent && !hearing.dismissed);
      judge.decide();
      controller.step(observation);
      ASSERT_EQ(judge.save().controller, controller.save()) << "seed " << seed << ", step " << step;
    }
  }
}

TEST(JudgeProperties, ARerunThatFailedEndsAsASpentStep) {
  int failed = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Random random(seed);
    const std::vector<Unit> units = testing::random_units(random, 15);
    Options options = testing::random_options(random);
    options.selector = Selector::trial;
    options.max_cost = 1;
    const JudgeSettings settings{.places = 2, .expected = {0.02, 0.02}, .can_rerun = true};
    Judge failing(units, options, settings);
    Judge spent(units, options, settings);
    RandomRun run(random, units.size());
    RandomErrors errors(random, units.size(), 2);
    for (int step = 0; step < 250; ++step) {
      const NormArrays arrays(run.next());
      const Observation observation{.step = step, .norms = arrays.norms, .sampled = arrays.sampled};
      const std::vector<double> patrol = errors.patrol();
      failed += failing.hear(observation, patrol).action == Action::trial ? 1 : 0;
      const Hearing& hearing = spent.hear(observation, patrol, /*may_rerun=*/false);
      ASSERT_EQ(hearing.spent, hearing.alarmed);
      const Ruling& a = failing.decide();
      const Ruling& b = spent.decide();
      ASSERT_EQ(a.action, b.action);
      ASSERT_EQ(a.verdict, b.verdict);
      ASSERT_EQ(std::vector<double>(a.clip.begin(), a.clip.end()), std::vector<double>(b.clip.begin(), b.clip.end()));
      JudgeState after_failing = failing.save();
      after_failing.reruns_ago.clear();
      ASSERT_EQ(after_failing, spent.save()) << "seed " << seed << ", step " << step;
    }
  }
  EXPECT_GT(failed, 100);
}

TEST(JudgeProperties, AWithdrawnStepLeavesNoTrace) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    JudgedRun run(seed);
    Random random(seed + 1000);
    RandomRun other(random, run.units().size());
    RandomErrors errors(random, run.units().size(), 2);
    for (int number = 0; number < 100; ++number) {
      const JudgeState before = run.judge().save();
      const std::uint32_t reruns_left = run.judge().reruns_left();
      const NormArrays arrays(other.next());
      run.judge().hear({.step = number, .norms = arrays.norms, .sampled = arrays.sampled}, errors.patrol());
      run.judge().withdraw();
      run.judge().withdraw();
      ASSERT_EQ(run.judge().save(), before);
      ASSERT_EQ(run.judge().reruns_left(), reruns_left);
      ASSERT_THROW(run.judge().decide(), Error);
      run.take(number);
    }
  }
}

}  // namespace
}  // namespace gnmr
