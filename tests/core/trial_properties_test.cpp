// SPDX-License-Identifier: Apache-2.0
// What must hold of every run with trials and replays, whatever norms and errors come.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "core/random_errors.h"
#include "core/random_run.h"
#include "core/run_step.h"
#include "gnmr/core/error.h"

namespace gnmr {
namespace {

using testing::NormArrays;
using testing::Random;
using testing::RandomErrors;
using testing::RandomRun;
using testing::run_step;
using testing::wants_trial;

std::vector<UnitIndex> copy(std::span<const UnitIndex> units) { return {units.begin(), units.end()}; }

bool holds(const std::vector<UnitIndex>& units, UnitIndex unit) {
  return std::find(units.begin(), units.end(), unit) != units.end();
}

/// A step of a run, as it ended.
struct Step {
  Outcome first;  // of its first run; views are those of `last`
  Outcome last;
  std::vector<UnitIndex> before;  // in recovery

  bool had_rerun() const { return first.action == Action::rerun; }
};

/// A controller of random units and options that can run a step again, with its norms and errors.
class TrialRun {
 public:
  explicit TrialRun(std::uint64_t seed)
      : random_(seed),
        units_(testing::random_units(random_, 3 + random_.below(30))),
        controller_(units_, options(random_), {.can_rerun = true, .sites = kSites, .expected_errors = {0.02, 0.0}}),
        norms_(random_, units_.size()),
        errors_(random_, units_.size(), kSites) {}

  Controller& controller() { return controller_; }
  const std::vector<Unit>& units() const { return units_; }

  Step take(int number) {
    Step step{.first = {}, .last = {}, .before = recovered_};
    const NormArrays arrays(norms_.next());
    const std::vector<double> patrol = errors_.patrol();
    step.first =
        run_step(controller_, {.step = number, .norms = arrays.norms, .sampled = arrays.sampled, .errors = patrol});
    step.last = step.first;
    if (step.had_rerun()) {
      const NormArrays again(norms_.next());
      const std::vector<double> trial = errors_.trial();
      step.last = random_.chance(0.1)
                      ? controller_.report({.step = number, .done = Completion::rerun_failed})
                      : run_step(controller_,
                                 {.step = number, .norms = again.norms, .sampled = again.sampled, .errors = trial});
    }
    recovered_ = copy(step.last.decision.recovered);
    return step;
  }

 private:
  static constexpr std::uint32_t kSites = 2;

  static Options options(Random& random) {
    Options options = testing::random_options(random);
    options.max_cost = 1;
    options.lag = 0;
    return options;
  }

  Random random_;
  std::vector<Unit> units_;
  Controller controller_;
  RandomRun norms_;
  RandomErrors errors_;
  std::vector<UnitIndex> recovered_;
};

TEST(TrialProperties, NeverMoreRerunsInAHundredStepsThanTheCap) {
  int most_used = 0;
  for (std::uint64_t seed = 0; seed < 120; ++seed) {
    TrialRun run(seed);
    const int cap = run.controller().options().max_trials;
    std::vector<int> reruns;
    for (int step = 0; step < 400; ++step) {
      reruns.push_back(run.take(step).had_rerun() ? 1 : 0);
      const auto first = reruns.end() - std::min<std::ptrdiff_t>(100, std::ssize(reruns));
      const int used = static_cast<int>(std::count(first, reruns.end(), 1));
      ASSERT_LE(used, cap) << "seed " << seed << ", step " << step;
      if (cap == 20) most_used = std::max(most_used, used);
    }
  }
  EXPECT_EQ(most_used, 20);  // the cap was tested
}

TEST(TrialProperties, OneDecisionAStepWithinTheBudgetAndNobodyTwice) {
  int admissions = 0;
  for (std::uint64_t seed = 200; seed < 320; ++seed) {
    TrialRun run(seed);
    for (int number = 0; number < 250; ++number) {
      const Step step = run.take(number);
      const Decision& decision = step.last.decision;
      ASSERT_EQ(run.controller().decisions(), static_cast<std::uint64_t>(number) + 1);
      ASSERT_THROW(run.controller().report({.step = number, .done = Completion::dropped}), Error);
      ASSERT_THROW(run.controller().report({}), Error);
      ASSERT_LE(decision.recovered.size(), run.controller().max_recovered());
      ASSERT_NE(step.last.action, Action::rerun);
      ASSERT_EQ(step.last.decided_step, number);
      const bool by_errors = step.last.verdict == Verdict::numeric;
      std::vector<UnitIndex> found;
      for (const Finding& finding : step.last.findings) found.push_back(finding.unit);
      for (const UnitIndex unit : decision.admitted) {
        ASSERT_FALSE(run.units()[unit].forced);
        ASSERT_TRUE(!holds(step.before, unit) || (!by_errors && holds(copy(decision.released), unit)));
        ASSERT_FALSE(step.first.dismissed) << "a dismissed alarm admits nobody";
        ASSERT_TRUE(!by_errors || holds(found, unit));
        ++admissions;
      }
      ASSERT_TRUE(!decision.common || decision.admitted.empty());
      for (const UnitIndex unit : found) ASSERT_FALSE(holds(step.before, unit));
    }
  }
  EXPECT_GT(admissions, 1000);
}

TEST(TrialProperties, ByNormsAndWithoutAGuardErrorsDoNotMatter) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Random random(seed);
    const std::vector<Unit> units = testing::random_units(random, 20);
    Options options = testing::random_options(random);
    options.selector = random.chance(0.5) ? Selector::norms : Selector::automatic;  // it cannot run a step again
    options.guard = Guard::none;
    options.max_cost = 1;
    options.coarse_error = 0;
    Controller with_errors(units, options, {.sites = 3});
    EXPECT_EQ(with_errors.selector(), Selector::norms);
    Controller by_norms = testing::norms_controller(units, options);
    RandomRun run(random, units.size());
    RandomErrors errors(random, units.size(), 3);
    for (int step = 0; step < 250; ++step) {
      const NormArrays arrays(run.next());
      const std::vector<double> patrol = errors.patrol();
      const StepReport report{.step = step, .norms = arrays.norms, .sampled = arrays.sampled};
      StepReport with_patrol = report;
      with_patrol.errors = patrol;
      const Outcome& outcome = run_step(with_errors, with_patrol);
      ASSERT_EQ(outcome.action, Action::apply);
      ASSERT_TRUE(outcome.clip.empty() && !outcome.spent && !outcome.dismissed);
      run_step(by_norms, report);
      ControllerState state = with_errors.save();
      state.sites = 0;
      state.errors.clear();
      ASSERT_EQ(state, by_norms.save()) << "seed " << seed << ", step " << step;
    }
  }
}

TEST(TrialProperties, ARerunThatFailedEndsAsASpentStep) {
  int failed = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Random random(seed);
    const std::vector<Unit> units = testing::random_units(random, 15);
    Options options = testing::random_options(random);
    options.selector = Selector::trial;
    options.max_cost = 1;
    options.max_high_share = 1;  // a trial that failed is paid for
    options.lag = 0;
    const Backend backend{.can_rerun = true, .sites = 2, .expected_errors = {0.02, 0.02}};
    Controller failing(units, options, backend);
    Controller spent(units, options, backend);
    RandomRun run(random, units.size());
    RandomErrors errors(random, units.size(), 2);
    for (int step = 0; step < 250; ++step) {
      const NormArrays arrays(run.next());
      const std::vector<double> patrol = errors.patrol();
      const StepReport report{.step = step, .norms = arrays.norms, .sampled = arrays.sampled, .errors = patrol};
      StepReport forbidden = report;
      forbidden.may_rerun = false;
      const Outcome* a = &run_step(failing, report);
      if (wants_trial(*a)) {
        ++failed;
        a = &failing.report({.step = step, .done = Completion::rerun_failed});
      }
      const Outcome& b = run_step(spent, forbidden);
      ASSERT_EQ(b.spent, b.alarmed);
      ASSERT_EQ(a->action, b.action);
      ASSERT_EQ(a->verdict, b.verdict);
      ASSERT_EQ(std::vector<double>(a->clip.begin(), a->clip.end()), std::vector<double>(b.clip.begin(), b.clip.end()));
      ControllerState after_failing = failing.save();
      after_failing.reruns_ago.clear();
      ASSERT_EQ(after_failing, spent.save()) << "seed " << seed << ", step " << step;
    }
  }
  EXPECT_GT(failed, 100);
}

TEST(TrialProperties, AStepThatBeginsAgainOrIsLeftLeavesNoTrace) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    TrialRun run(seed);
    Random random(seed + 1000);
    RandomRun other(random, run.units().size());
    for (int number = 0; number < 100; ++number) {
      Controller& controller = run.controller();
      const ControllerState before = controller.save();
      const std::uint32_t reruns_left = controller.reruns_left();
      const NormArrays arrays(other.next());
      controller.begin(number);
      controller.begin(number);
      ASSERT_THROW(controller.report({.step = number + 1, .norms = arrays.norms, .sampled = arrays.sampled}), Error);
      controller.begin(number + 1);
      ASSERT_EQ(controller.save(), before);
      ASSERT_EQ(controller.reruns_left(), reruns_left);
      ASSERT_THROW(controller.report({.step = number, .norms = arrays.norms, .sampled = arrays.sampled}), Error);
      run.take(number);
    }
  }
}

}  // namespace
}  // namespace gnmr
