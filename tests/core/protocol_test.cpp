// SPDX-License-Identifier: Apache-2.0
// What a caller of `begin` and `report` may rely on: gnmr/core/step.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "core/random_errors.h"
#include "core/random_run.h"
#include "core/run_step.h"
#include "gnmr/core/error.h"

namespace gnmr {
namespace {

using testing::clone;
using testing::run_step;
using testing::wants_trial;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr std::size_t kUnits = 12;

std::string message_of(const auto& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// A plan without its views.
struct Plain {
  std::int64_t step, batch;
  PassKind pass;
  bool again;
  HoldRule hold;
  Mode mode;
  std::vector<std::uint8_t> path;
  std::vector<UnitIndex> recovered;
  std::vector<std::uint8_t> gate_flags;

  explicit Plain(const StepPlan& plan)
      : step(plan.step),
        batch(plan.batch),
        pass(plan.pass),
        again(plan.again),
        hold(plan.hold),
        mode(plan.mode),
        path(plan.path.begin(), plan.path.end()),
        recovered(plan.recovered.begin(), plan.recovered.end()),
        gate_flags(plan.gate_flags.begin(), plan.gate_flags.end()) {}

  bool operator==(const Plain&) const = default;
};

std::vector<UnitIndex> high_units(const StepPlan& plan) {
  std::vector<UnitIndex> units;
  for (UnitIndex unit = 0; unit < plan.path.size(); ++unit) {
    EXPECT_TRUE(plan.path[unit] == kLowPath || plan.path[unit] == kHighPath);
    if (plan.path[unit] == kHighPath) units.push_back(unit);
  }
  return units;
}

/// Twelve units that have been calm for thirty steps.
class Protocol : public ::testing::Test {
 protected:
  Controller make(Options options, const Backend& backend = {.can_rerun = true, .sites = 2}) {
    if (options.max_o < 1) options.max_o = 3;
    std::vector<Unit> units;
    for (std::size_t i = 0; i < kUnits; ++i) units.push_back({.name = "u" + std::to_string(i)});
    Controller controller(units, options, backend);
    for (step_ = 1; step_ <= 30; ++step_) run_step(controller, {.step = step_, .norms = calm_});
    return controller;  // step_ is the next one
  }

  static Options with(Selector selector, Guard guard = Guard::none, int lag = 0) {
    Options options;
    options.selector = selector;
    options.guard = guard;
    options.lag = lag;
    return options;
  }

  static std::vector<double> risen(UnitIndex unit) {
    std::vector<double> norms(kUnits, 1.0);
    norms[unit] = 9;
    return norms;
  }

  std::int64_t step_ = 0;
  const std::vector<double> calm_ = std::vector<double>(kUnits, 1.0);
};

TEST_F(Protocol, ReservedFieldsAreErrorsAndChangeNothing) {
  for (const int lag : {0, 1}) {
    Controller controller = make(with(Selector::trial, Guard::none, lag));
    const ControllerState before = controller.save();
    controller.begin(step_);
    const std::vector<std::int64_t> tokens(kUnits, 1);
    const std::vector<float> scale_fit(kUnits, 1.0F);
    EXPECT_EQ(message_of([&] { controller.report({.step = step_, .norms = calm_, .tokens = tokens}); }),
              "[step 31] expected no tokens: they are not supported yet");
    EXPECT_EQ(message_of([&] { controller.report({.step = step_, .norms = calm_, .scale_fit = scale_fit}); }),
              "[step 31] expected no scale_fit: it is not supported yet");
    EXPECT_EQ(controller.save(), before);
    const Outcome& outcome = controller.report({.step = step_, .norms = calm_});
    EXPECT_EQ(outcome.decided_step, step_);
    const StepPlan& plan = controller.begin(step_ + 1);
    EXPECT_TRUE(plan.measure.empty());
    EXPECT_EQ(plan.error_limits.empty(), lag == 0) << "for a gate";
  }
}

TEST_F(Protocol, AStepThatBeginsTwiceHasTheSamePlan) {
  for (const int lag : {0, 1}) {
    Controller controller = make(with(Selector::norms, Guard::skip, lag));
    run_step(controller, {.step = step_, .norms = risen(4)});
    for (int i = 0; i < 3; ++i) {
      const Plain first(controller.begin(++step_));
      EXPECT_EQ(Plain(controller.begin(step_)), first);
      EXPECT_EQ(first.batch, step_);
      EXPECT_EQ(first.gate_flags.empty(), lag == 0);
      controller.report({.step = step_, .norms = calm_});
    }
  }
}

TEST_F(Protocol, WithLagOneAPlanIsTheSameWheneverTheStepBeforeIsReported) {
  Controller late = make(with(Selector::trial, Guard::skip, 1));
  Controller early = clone(late);
  late.begin(step_);
  early.begin(step_);
  const Plain expected(late.begin(step_ + 1));  // planned by `begin`
  const std::vector<double> norms = risen(4);
  const StepReport report{.step = step_, .norms = norms};
  late.report(report);
  early.report(report);  // plans the next step before it decides
  EXPECT_EQ(Plain(early.begin(step_ + 1)), expected);
  EXPECT_EQ(early.save(), late.save());
  EXPECT_EQ(early.plan_state(), late.plan_state());
}

TEST_F(Protocol, ADueRerunComesBeforeAnyOtherStep) {
  for (const Selector selector : {Selector::trial, Selector::norms}) {
    Controller controller = make(with(selector, Guard::replay));
    const std::int64_t batch = controller.begin(step_).batch;
    const Outcome& outcome = controller.report({.step = step_, .norms = risen(4)});
    ASSERT_EQ(outcome.action, Action::rerun);
    const PassKind pass = outcome.rerun;
    EXPECT_EQ(pass, selector == Selector::trial ? PassKind::trial : PassKind::replay);
    EXPECT_EQ(message_of([&] { controller.begin(step_ + 1); }),
              "[step 32] expected the rerun of step 31, or its report as failed, first");
    const Plain rerun(controller.begin(step_));
    EXPECT_TRUE(rerun.pass == pass && rerun.again && rerun.batch == batch);
    EXPECT_EQ(Plain(controller.begin(step_)), rerun);
    EXPECT_THROW(controller.begin(step_ + 1), Error) << "it runs";
    EXPECT_EQ(controller.report({.step = step_, .norms = calm_}).action, Action::apply);
    EXPECT_EQ(controller.begin(step_ + 1).batch, batch + 1);
  }
}

TEST_F(Protocol, WithLagOneStepsFollowEachOther) {
  Controller controller = make(with(Selector::trial, Guard::none, 1));
  controller.begin(step_);
  EXPECT_THROW(controller.report({.step = step_ + 1, .norms = calm_}), Error) << "it has not begun";
  EXPECT_THROW(controller.begin(step_ + 2), Error);
  controller.begin(step_ + 1);
  EXPECT_THROW(controller.begin(step_ + 2), Error) << "two are not decided";
  EXPECT_THROW(controller.report({.step = step_ + 1, .norms = calm_}), Error) << "not the oldest";
  EXPECT_THROW(controller.report({.step = step_, .done = Completion::rerun_failed}), Error) << "no trial";
  controller.report({.step = step_, .norms = calm_});
  EXPECT_EQ(controller.begin(step_ + 2).step, step_ + 2);
}

TEST_F(Protocol, AControllerByNormsMayLeaveStepsOut) {
  for (const int lag : {0, 1}) {
    Controller controller = make(with(Selector::automatic, Guard::none, lag), norms_only());
    const Outcome& outcome = run_step(controller, {.step = 100, .norms = risen(4)});
    EXPECT_EQ(outcome.decided_step, 100);
    EXPECT_EQ(outcome.in_force_from, 101 + lag);
    EXPECT_EQ(std::vector(outcome.decision.admitted.begin(), outcome.decision.admitted.end()),
              (std::vector<UnitIndex>{4}));
  }
}

// Bit for bit, with units in recovery, waits and locks that go on.
TEST_F(Protocol, ADroppedStepIsOneInWhichNoUnitHasASample) {
  int recovered = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    testing::Random random(seed);
    const std::vector<Unit> units = testing::random_units(random, 15);
    Options options = testing::random_options(random);
    options.max_cost = 1;
    if (options.guard == Guard::clip || options.selector == Selector::evidence ||
        options.selector == Selector::evidence_after_alarm) {
      options.guard = Guard::none;
    }
    const Backend backend{.can_rerun = true, .sites = 2, .expected_errors = {0.02, 0.0}};
    Controller dropping(units, options, backend);
    Controller empty(units, options, backend);
    testing::RandomRun run(random, units.size());
    testing::RandomErrors errors(random, units.size(), 2);
    const std::vector<double> nothing(units.size(), kNan);
    const std::vector<std::uint8_t> none(units.size(), 0);
    for (int step = 1; step <= 200; ++step) {
      const StepReport without{.step = step, .norms = nothing, .sampled = none};
      if (random.chance(0.3)) {
        const Outcome& outcome = run_step(dropping, {.step = step, .done = Completion::dropped});
        ASSERT_EQ(outcome.action, Action::hold);
        ASSERT_TRUE(outcome.findings.empty() && !outcome.alarmed && outcome.alarm.sampled == 0);
        ASSERT_EQ(outcome.verdict, Verdict::none);
        recovered += static_cast<int>(outcome.decision.recovered.size());
        run_step(empty, without);
        ASSERT_FALSE(dropping.signals(0).sampled);
      } else {
        const testing::NormArrays arrays(run.next());
        const std::vector<double> patrol = errors.patrol();
        const StepReport report{.step = step, .norms = arrays.norms, .sampled = arrays.sampled, .errors = patrol};
        const bool again = run_step(dropping, report).action == Action::rerun;
        ASSERT_EQ(run_step(empty, report).action == Action::rerun, again);
        if (again && options.lag == 0) {
          run_step(dropping, report);
          run_step(empty, report);
        }
      }
      ASSERT_EQ(dropping.save(), empty.save()) << "seed " << seed << ", step " << step;
      ASSERT_EQ(dropping.plan_state(), empty.plan_state()) << "seed " << seed << ", step " << step;
    }
  }
  EXPECT_GT(recovered, 100);
}

TEST_F(Protocol, ThePathsAreThoseOfTheUnitsInRecovery) {
  for (const int lag : {0, 1}) {
    Controller controller = make(with(Selector::norms, Guard::none, lag));
    EXPECT_EQ(high_units(controller.begin(step_)), std::vector<UnitIndex>{});
    const Outcome& outcome = controller.report({.step = step_, .norms = risen(4)});
    const std::int64_t from = outcome.in_force_from;
    EXPECT_EQ(from, step_ + 1 + lag);
    for (++step_; step_ < from + controller.options().lock_steps; ++step_) {
      const StepPlan& plan = controller.begin(step_);
      const std::vector<UnitIndex> expected = step_ < from ? std::vector<UnitIndex>{} : std::vector<UnitIndex>{4};
      EXPECT_EQ(high_units(plan), expected) << step_;
      EXPECT_EQ(std::vector(plan.recovered.begin(), plan.recovered.end()), expected);
      controller.report({.step = step_, .norms = calm_});
    }
    EXPECT_EQ(high_units(controller.begin(step_)), std::vector<UnitIndex>{}) << "the lock is over";
  }
}

TEST_F(Protocol, ATrialRunsAllUnitsHighAndAReplayThoseOfTheDecision) {
  Controller controller = make(with(Selector::trial));
  run_step(controller, {.step = step_, .norms = risen(4)});
  EXPECT_EQ(high_units(controller.begin(step_)).size(), kUnits);
  controller.report({.step = step_, .norms = calm_});
  EXPECT_EQ(high_units(controller.begin(step_ + 1)).size(), 0u);
  Controller replay = make(with(Selector::norms, Guard::replay));
  run_step(replay, {.step = step_, .norms = risen(4)});
  EXPECT_EQ(high_units(replay.begin(step_)), (std::vector<UnitIndex>{4}));
}

TEST_F(Protocol, AWatchedStepIsDecidedAndChangesNothingInTheRun) {
  for (const Guard guard : {Guard::skip, Guard::clip, Guard::replay}) {
    Controller controller = make(with(Selector::norms, guard));
    Controller armed = clone(controller);
    controller.set_mode(Mode::watch);
    EXPECT_EQ(controller.mode(), Mode::watch);
    const Outcome& outcome = run_step(controller, {.step = step_, .norms = risen(4)});
    EXPECT_EQ(outcome.action, Action::apply);
    EXPECT_TRUE(outcome.clip.empty());
    EXPECT_EQ(outcome.decision.admitted.size(), 1u);
    EXPECT_EQ(outcome.spent, guard == Guard::replay);
    run_step(armed, {.step = step_, .norms = risen(4)});
    EXPECT_EQ(controller.save().units, armed.save().units) << "the decisions are the same";
    const StepPlan& plan = controller.begin(++step_);
    EXPECT_EQ(plan.mode, Mode::watch);
    EXPECT_TRUE(plan.recovered.empty());
    EXPECT_EQ(high_units(plan).size(), 0u);
    EXPECT_EQ(controller.recovered().size(), 1u);
    controller.report({.step = step_, .norms = calm_});
    controller.set_mode(Mode::armed);
    EXPECT_EQ(high_units(controller.begin(++step_)), (std::vector<UnitIndex>{4}));
  }
  Controller by_trial = make(with(Selector::trial));
  by_trial.set_mode(Mode::watch);
  const Outcome& outcome = run_step(by_trial, {.step = step_, .norms = risen(4)});
  EXPECT_TRUE(outcome.spent && outcome.action == Action::apply) << "no trial";
}

TEST_F(Protocol, WatchedWithLagOneNothingIsHeldAndNothingComesBack) {
  for (const Mode mode : {Mode::watch, Mode::high}) {
    Controller controller = make(with(Selector::trial, Guard::skip, 1));
    controller.set_mode(mode);
    EXPECT_EQ(controller.begin(step_).hold, HoldRule::never);
    EXPECT_THROW(controller.report({.step = step_, .norms = risen(4), .held = true}), Error);
    EXPECT_EQ(controller.report({.step = step_, .norms = risen(4)}).action, Action::apply);
    EXPECT_TRUE(controller.plan_state().waiting.empty());
    controller.set_mode(Mode::armed);
    EXPECT_EQ(controller.begin(step_ + 1).hold, HoldRule::for_trial);
  }
}

TEST_F(Protocol, InModeHighEveryUnitRunsHigh) {
  for (const int lag : {0, 1}) {
    Controller controller = make(with(Selector::norms, Guard::none, lag));
    controller.set_mode(Mode::high);
    for (int i = 0; i < 3; ++i, ++step_) {
      const StepPlan& plan = controller.begin(step_);
      EXPECT_EQ(plan.mode, Mode::high);
      EXPECT_EQ(high_units(plan).size(), kUnits);
      EXPECT_TRUE(plan.recovered.empty());
      controller.report({.step = step_, .norms = risen(4)});
    }
    EXPECT_EQ(controller.recovered().size(), 1u) << "decisions go on";
    controller.set_mode(Mode::armed);
    EXPECT_EQ(high_units(controller.begin(step_)), (std::vector<UnitIndex>{4}));
  }
}

TEST_F(Protocol, TheModeIsNotPartOfTheStateAndTakesEffectAtTheNextBegin) {
  Controller controller = make(with(Selector::norms));
  controller.begin(step_);
  controller.set_mode(Mode::high);
  EXPECT_EQ(high_units(controller.begin(step_)).size(), 0u) << "it has begun";
  controller.report({.step = step_, .norms = calm_});
  controller.restore(controller.save(), controller.plan_state());
  EXPECT_EQ(controller.mode(), Mode::high);
  EXPECT_EQ(clone(controller).mode(), Mode::armed);
  EXPECT_STREQ(to_string(Mode::armed), "armed");
  EXPECT_STREQ(to_string(Mode::watch), "watch");
  EXPECT_STREQ(to_string(Mode::high), "high");
}

TEST_F(Protocol, AHeldStepThatIsDroppedComesBackAsWhatItWasHeldFor) {
  Controller controller = make(with(Selector::trial, Guard::none, 1));
  ASSERT_EQ(controller.begin(step_).hold, HoldRule::for_trial);
  const Outcome& outcome = controller.report({.step = step_, .done = Completion::dropped, .held = true});
  EXPECT_TRUE(wants_trial(outcome) && outcome.alarmed && outcome.decided_step == step_);
  controller.begin(step_ + 1);
  controller.report({.step = step_ + 1, .norms = calm_});
  const StepPlan& plan = controller.begin(step_ + 2);
  EXPECT_TRUE(plan.batch == step_ && plan.again && plan.pass == PassKind::trial);
}

TEST_F(Protocol, WithLagOneAReplayThatFailedIsAPlainStepAndCountsAsARerun) {
  Controller controller = make(with(Selector::norms, Guard::replay, 1));
  const std::uint32_t left = controller.reruns_left();
  std::vector<double> norms = calm_;
  norms[3] = 40;
  controller.begin(step_);
  EXPECT_EQ(controller.report({.step = step_, .norms = norms, .held = true}).rerun, PassKind::replay);
  controller.begin(step_ + 1);
  controller.report({.step = step_ + 1, .norms = calm_});
  ASSERT_EQ(controller.begin(step_ + 2).pass, PassKind::replay);
  const Outcome& outcome = controller.report({.step = step_ + 2, .norms = calm_, .done = Completion::rerun_failed});
  EXPECT_EQ(outcome.action, Action::apply);
  EXPECT_EQ(controller.reruns_left(), left - 1);
}

TEST_F(Protocol, StepsMayBeLeftOutAfterARestoreOnlyWhereNoneIsOpen) {
  Options options;
  options.lag = 1;
  Controller controller = make(options, norms_only());
  controller.begin(step_);
  controller.begin(step_ + 1);
  Controller restored = clone(controller);
  EXPECT_THROW(restored.begin(step_ + 3), Error);
  EXPECT_EQ(restored.report({.step = step_, .norms = calm_}).decided_step, step_);
  EXPECT_EQ(restored.begin(step_ + 3).step, step_ + 3);
}

TEST_F(Protocol, WordsOfActionsPassesAndVerdicts) {
  EXPECT_STREQ(to_string(Action::apply), "apply");
  EXPECT_STREQ(to_string(Action::hold), "hold");
  EXPECT_STREQ(to_string(Action::rerun), "rerun");
  EXPECT_STREQ(to_string(PassKind::step), "step");
  EXPECT_STREQ(to_string(PassKind::replay), "replay");
  EXPECT_STREQ(to_string(PassKind::trial), "trial");
  EXPECT_STREQ(to_string(Verdict::unlocated), "unlocated");
}

TEST_F(Protocol, ABackendWithoutGateNorHoldHasNoGuard) {
  Controller controller = make(with(Selector::norms, Guard::skip), norms_only());
  EXPECT_EQ(controller.guard(), Guard::none);
  EXPECT_EQ(run_step(controller, {.step = step_, .norms = risen(4)}).action, Action::apply);
  EXPECT_NO_THROW(check_options(with(Selector::trial, Guard::clip, 1), norms_only()));
  EXPECT_THROW(check_options(with(Selector::trial), {}), Error);
}

// Each rule, on both sides.
TEST(OptionEffect, WhatChangesNothingIsSaidWithItsReason) {
  const Backend full{.can_rerun = true, .sites = 2, .expected_errors = {0.03, 0}};
  const Backend no_rerun{.can_rerun = false, .sites = 2, .expected_errors = {0.03, 0}};
  const Backend unknown{.can_rerun = true, .sites = 2};
  const Options fresh;
  Options by_norms;
  by_norms.selector = Selector::norms;
  Options by_evidence;
  by_evidence.selector = Selector::evidence;
  Options guarded;
  guarded.guard = Guard::skip;
  Options replays = by_norms;
  replays.guard = Guard::replay;
  Options no_noise;
  no_noise.noise_factor = 0;
  Options no_trials;
  no_trials.max_trials = 0;

  EXPECT_EQ(why_without_effect("selector", by_evidence, norms_only()), "errors of low paths are not measured here");
  EXPECT_EQ(why_without_effect("selector", by_norms, norms_only()), "");
  EXPECT_EQ(why_without_effect("selector", by_evidence, full), "");

  EXPECT_EQ(why_without_effect("guard", guarded, norms_only()), "updates cannot be held or scaled here");
  EXPECT_EQ(why_without_effect("guard", fresh, norms_only()), "");
  EXPECT_EQ(why_without_effect("guard", guarded, full), "");

  EXPECT_EQ(why_without_effect("max_trials", fresh, no_rerun), "no step can run again here");
  EXPECT_EQ(why_without_effect("max_trials", by_norms, full),
            "neither the selector `trial` nor the guard `replay` is in force");
  EXPECT_EQ(why_without_effect("max_trials", no_trials, no_rerun), "");
  EXPECT_EQ(why_without_effect("max_trials", fresh, full), "") << "the selector is `trial`";
  EXPECT_EQ(why_without_effect("max_trials", replays, full), "");

  for (const char* option : {"error_factor", "error_floor", "error_ceiling", "error_beta", "error_warmup"}) {
    EXPECT_EQ(why_without_effect(option, fresh, norms_only()), "errors of low paths are not measured here") << option;
    EXPECT_EQ(why_without_effect(option, by_norms, full), "the selector is `norms`") << option;
    EXPECT_EQ(why_without_effect(option, fresh, full), "") << option;
    EXPECT_EQ(why_without_effect(option, by_evidence, no_rerun), "") << option;
  }

  EXPECT_EQ(why_without_effect("error_ceiling", fresh, unknown), "the errors of the formats themselves are not known");
  EXPECT_EQ(why_without_effect("error_factor", fresh, unknown), "");

  Options never_stands;
  never_stands.coarse_error = 0;
  for (const char* option : {"coarse_error", "coarse_factor", "coarse_fill"}) {
    EXPECT_EQ(why_without_effect(option, fresh, norms_only()), "errors of low paths are not measured here") << option;
    EXPECT_EQ(why_without_effect(option, by_norms, full), "") << option;
  }
  EXPECT_EQ(why_without_effect("coarse_error", never_stands, norms_only()), "");
  EXPECT_EQ(why_without_effect("coarse_factor", never_stands, full), "coarse_error is 0");
  EXPECT_EQ(why_without_effect("coarse_fill", never_stands, full), "coarse_error is 0");

  Options idle_guard;
  idle_guard.guard = Guard::replay;
  EXPECT_EQ(why_without_effect("guard", idle_guard, full), "a guard `replay` does nothing with the selector `trial`");

  EXPECT_EQ(why_without_effect("noise_beta", no_noise, full), "noise_factor is 0");
  EXPECT_EQ(why_without_effect("noise_beta", fresh, full), "");
  EXPECT_EQ(why_without_effect("tau", no_noise, norms_only()), "");
}

TEST(OptionEffect, OnlyOptionsThatWereNamedAreRefused) {
  Options options;
  options.selector = Selector::norms;
  options.error_factor = 7;
  const Backend backend{.can_rerun = true, .sites = 2};
  const std::vector<std::string> none;
  const std::vector<std::string> effective{"selector", "tau"};
  const std::vector<std::string> both{"tau", "error_factor", "max_trials"};
  EXPECT_NO_THROW(refuse_without_effect(options, backend, none));
  EXPECT_NO_THROW(refuse_without_effect(options, backend, effective));
  EXPECT_EQ(message_of([&] { refuse_without_effect(options, backend, both); }),
            "option `error_factor`: has no effect, since the selector is `norms`; leave it out");
}

}  // namespace
}  // namespace gnmr
