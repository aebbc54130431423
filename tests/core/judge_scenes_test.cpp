// SPDX-License-Identifier: Apache-2.0
// Scenes of docs/algorithm.md, "Recovery that hits the right unit", with numbers that can be followed by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gnmr/core/error.h"
#include "gnmr/core/judge.h"

namespace gnmr {
namespace {

using Units = std::vector<UnitIndex>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::size_t kUnits = 12;

Units copy(std::span<const UnitIndex> units) { return {units.begin(), units.end()}; }

std::string message_of(const auto& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// Twelve units in health for 30 steps; their errors are 0.02, which is what the format makes of them.
class JudgeScene : public ::testing::Test {
 protected:
  Judge make(Selector selector, Guard guard = Guard::none, bool can_rerun = true) {
    Options options = options_;
    options.selector = selector;
    options.guard = guard;
    std::vector<Unit> units = units_;
    for (std::size_t i = units.size(); i < kUnits; ++i) units.push_back({.name = "u" + std::to_string(i)});
    Judge judge(units, options, {.places = 1, .expected = {0.02}, .can_rerun = can_rerun});
    for (; step_ < 30; ++step_) {
      judge.hear({.step = step_, .norms = calm_}, usual_);
      judge.decide();
    }
    return judge;
  }

  static std::vector<double> with(std::vector<double> numbers, UnitIndex unit, double value) {
    numbers[unit] = value;
    return numbers;
  }

  const Hearing& hear(Judge& judge, const std::vector<double>& norms, const std::vector<double>& patrol = {}) {
    return judge.hear({.step = step_, .norms = norms}, patrol);
  }
  const Ruling& conclude(Judge& judge, const std::vector<double>& norms, const std::vector<double>& errors) {
    return judge.conclude({.step = step_, .norms = norms}, errors);
  }

  static Options make_options() {
    Options options;
    options.max_o = 3;
    options.error_floor = 0.01;
    return options;
  }

  Options options_ = make_options();
  std::vector<Unit> units_;
  int step_ = 0;
  const std::vector<double> calm_ = std::vector<double>(kUnits, 1.0);
  const std::vector<double> usual_ = std::vector<double>(kUnits, 0.02);
};

TEST_F(JudgeScene, ATrialPicksTheUnitWhoseLowPathIsWrongNotTheOneWhoseNormRose) {
  Judge judge = make(Selector::automatic);
  EXPECT_EQ(judge.selector(), Selector::trial);
  const Hearing& hearing = hear(judge, with(calm_, 3, 9));  // the neighbour's
  EXPECT_EQ(hearing.action, Action::trial);
  EXPECT_TRUE(hearing.alarmed);
  const Ruling& ruling = conclude(judge, calm_, with(usual_, 4, 0.5));
  EXPECT_EQ(ruling.verdict, Verdict::numeric);
  EXPECT_EQ(copy(ruling.decision.admitted), (Units{4}));
  EXPECT_EQ(ruling.errors[0], 0.5);
  EXPECT_DOUBLE_EQ(ruling.excesses[0], 0.5 / 0.08);  // four times the usual
  EXPECT_DOUBLE_EQ(judge.error_limit(4, 0), 0.08);
  const JudgeState state = judge.save();
  EXPECT_EQ(state.controller.units[4].admitted_for, RiskKind::error);
  EXPECT_EQ(state.errors[4].samples, 30u) << "what stands out is not learned";
  EXPECT_EQ(state.errors[3].samples, 31u);
  EXPECT_EQ(judge.controller().signals(3).ratio, 1.0) << "the alarmed norms have left no trace";
  EXPECT_EQ(state.reruns_ago, (std::vector<std::uint32_t>{0}));
}

TEST_F(JudgeScene, TheSameInHighPrecisionIsCommonAndWhatIsNotSeenAgainIsGone) {
  Judge judge = make(Selector::trial);
  hear(judge, with(calm_, 3, 9));
  const Ruling& common = conclude(judge, with(calm_, 3, 9), usual_);
  EXPECT_EQ(common.verdict, Verdict::common);
  EXPECT_TRUE(common.decision.common && common.decision.admitted.empty() && common.decision.denied.empty());
  ++step_;
  hear(judge, with(calm_, 3, kNan));
  const Ruling& unlocated = conclude(judge, calm_, usual_);
  EXPECT_EQ(unlocated.verdict, Verdict::unlocated);
  EXPECT_FALSE(unlocated.decision.common);
}

TEST_F(JudgeScene, ACompletePatrolDismissesAnAlarmOfFiniteNormsOnly) {
  Judge judge = make(Selector::trial);
  const Hearing& dismissed = hear(judge, with(calm_, 3, 9), usual_);
  EXPECT_TRUE(dismissed.dismissed && !dismissed.alarmed);
  EXPECT_EQ(dismissed.action, Action::proceed);
  EXPECT_TRUE(judge.decide().decision.admitted.empty());
  ++step_;
  EXPECT_EQ(hear(judge, with(calm_, 3, kInfinity), usual_).action, Action::trial);
  judge.withdraw();
  EXPECT_EQ(hear(judge, with(calm_, 3, 9), with(usual_, 7, kNan)).action, Action::trial) << "one was not measured";
  judge.withdraw();
  const Hearing& by_error = hear(judge, calm_, with(with(usual_, 3, kNan), 5, 0.2));
  EXPECT_EQ(by_error.action, Action::trial) << "no norm is at risk";
  EXPECT_EQ(copy(by_error.standing_out), (Units{5}));
}

TEST_F(JudgeScene, SpentStepsAreDecidedByErrorsAndByNormsWhereThereAreNone) {
  options_.max_trials = 0;
  Judge judge = make(Selector::trial);
  const Hearing& hearing = hear(judge, with(calm_, 3, 9), with(std::vector<double>(kUnits, kNan), 8, 0.2));
  EXPECT_TRUE(hearing.spent && hearing.alarmed);
  EXPECT_EQ(copy(judge.decide().decision.admitted), (Units{8}));
  ++step_;
  hear(judge, with(calm_, 3, 9));
  EXPECT_EQ(copy(judge.decide().decision.admitted), (Units{3}));
}

TEST_F(JudgeScene, EvidenceAloneAndEvidenceAfterAnAlarm) {
  Judge alone = make(Selector::evidence);
  hear(alone, calm_, with(usual_, 8, 0.2));
  EXPECT_EQ(copy(alone.decide().decision.admitted), (Units{8}));
  step_ = 0;
  Judge after = make(Selector::evidence_after_alarm);
  hear(after, calm_, with(usual_, 8, 0.2));
  EXPECT_TRUE(after.decide().decision.admitted.empty());
  ++step_;
  hear(after, with(calm_, 3, 9), with(usual_, 8, 0.2));
  EXPECT_EQ(copy(after.decide().decision.admitted), (Units{8}));
}

TEST_F(JudgeScene, ErrorsOverruleCommonNorms) {
  Judge judge = make(Selector::evidence);
  hear(judge, std::vector<double>(kUnits, 9.0), with(usual_, 8, 0.2));
  EXPECT_TRUE(judge.alarm().common);
  const Ruling& ruling = judge.decide();
  EXPECT_EQ(copy(ruling.decision.admitted), (Units{8}));
  EXPECT_FALSE(ruling.decision.common);
}

TEST_F(JudgeScene, AForcedUnitIsToldAndRaisesNoAlarm) {
  units_ = {{.name = "forced", .forced = true}};
  Judge judge = make(Selector::trial);
  const Hearing& hearing = hear(judge, calm_, with(usual_, 0, 0.9));
  EXPECT_EQ(copy(hearing.standing_out), (Units{0}));
  EXPECT_FALSE(hearing.alarmed);
  judge.withdraw();
  hear(judge, with(calm_, 3, 9));
  const Ruling& ruling = conclude(judge, calm_, with(usual_, 0, 0.9));
  EXPECT_EQ(ruling.verdict, Verdict::numeric);
  EXPECT_TRUE(ruling.decision.admitted.empty() && ruling.decision.denied.empty());
}

TEST_F(JudgeScene, TheGuardClipsWhoAsks) {
  Judge judge = make(Selector::norms, Guard::clip);
  const Hearing& hearing = hear(judge, with(with(calm_, 3, 8), 5, kNan));
  ASSERT_EQ(hearing.clip.size(), kUnits);
  EXPECT_EQ(hearing.clip[3], judge.controller().mean_norm(3) / 8);
  EXPECT_NEAR(hearing.clip[3], 1.0 / 8, 1e-12);
  EXPECT_EQ(hearing.clip[5], 0);
  EXPECT_EQ(std::count(hearing.clip.begin(), hearing.clip.end(), 1.0), 10);
  EXPECT_EQ(judge.decide().clip.size(), kUnits);
  ++step_;
  EXPECT_TRUE(hear(judge, calm_).clip.empty());
  judge.withdraw();
  EXPECT_TRUE(hear(judge, std::vector<double>(kUnits, 9.0)).clip.empty()) << "a common step has no candidates";
}

TEST_F(JudgeScene, TheGuardSkipsOrReplays) {
  Judge skip = make(Selector::norms, Guard::skip);
  EXPECT_EQ(hear(skip, calm_).action, Action::proceed);
  EXPECT_EQ(skip.decide().action, Action::proceed);
  ++step_;
  EXPECT_EQ(hear(skip, with(calm_, 3, 9)).action, Action::hold);
  EXPECT_EQ(skip.decide().action, Action::hold);
  step_ = 0;
  options_.max_o = 1;
  options_.max_trials = 1;
  Judge replay = make(Selector::norms, Guard::replay);
  EXPECT_EQ(hear(replay, with(calm_, 3, 9)).action, Action::replay);
  EXPECT_EQ(copy(replay.decide().decision.recovered), (Units{3}));
  EXPECT_EQ(replay.reruns_left(), 0u);
  ++step_;
  EXPECT_TRUE(hear(replay, with(calm_, 4, 9)).spent);
  EXPECT_EQ(replay.decide().action, Action::proceed);
}

TEST_F(JudgeScene, AReplayNeedsSomebodyAdmitted) {
  options_.max_o = 0;
  Judge judge = make(Selector::norms, Guard::replay);
  EXPECT_EQ(hear(judge, with(calm_, 3, 9)).action, Action::replay);
  EXPECT_EQ(judge.decide().action, Action::proceed);
  EXPECT_EQ(judge.reruns_left(), 20u);
}

TEST_F(JudgeScene, AReplayForAUnitThatRanHighWouldChangeNothing) {
  options_.max_o = 1;
  options_.lock_steps = 1;
  options_.cooldown_steps = 0;
  Judge judge = make(Selector::norms, Guard::replay);
  hear(judge, with(calm_, 3, kNan));
  EXPECT_EQ(judge.decide().action, Action::replay);
  ++step_;
  EXPECT_EQ(hear(judge, with(with(calm_, 3, kNan), 5, 9)).action, Action::replay);  // for unit 5
  const Ruling& ruling = judge.decide();
  EXPECT_EQ(copy(ruling.decision.released), (Units{3}));
  EXPECT_EQ(copy(ruling.decision.admitted), (Units{3}));
  EXPECT_EQ(copy(ruling.decision.denied), (Units{5}));
  EXPECT_EQ(ruling.action, Action::proceed);
  EXPECT_EQ(judge.reruns_left(), 19u);
}

TEST_F(JudgeScene, LimitsAreThoseOfTheStepThatWasJudgedLast) {
  Judge judge = make(Selector::evidence);
  hear(judge, calm_, with(usual_, 3, kNan));
  EXPECT_DOUBLE_EQ(judge.error_limit(4, 0), 0.08);
  EXPECT_TRUE(std::isnan(judge.error_limit(3, 0)));
  judge.withdraw();
  EXPECT_TRUE(std::isnan(judge.error_limit(4, 0)));
  hear(judge, calm_);
  EXPECT_TRUE(std::isnan(judge.error_limit(4, 0)));
}

TEST_F(JudgeScene, BeforeItsOwnHistoryAUnitIsJudgedByItsNeighboursInATrialOnly) {
  options_.error_ceiling = 0;
  step_ = 30;
  Judge judge = make(Selector::trial);  // no errors so far
  EXPECT_FALSE(hear(judge, calm_, with(usual_, 8, 0.2)).alarmed);
  EXPECT_EQ(judge.error_limit(8, 0), kInfinity);
  judge.withdraw();
  EXPECT_EQ(hear(judge, with(calm_, 3, kNan), with(usual_, 8, 0.2)).action, Action::trial);
  const Ruling& ruling = conclude(judge, calm_, with(usual_, 8, 0.2));
  EXPECT_EQ(copy(ruling.units), (Units{8}));
  EXPECT_DOUBLE_EQ(judge.error_limit(8, 0), 0.08);
}

TEST_F(JudgeScene, AnErrorAdmissionIsNeverFutileAndRelapses) {
  Judge judge = make(Selector::evidence);
  hear(judge, calm_, with(usual_, 8, 0.2));
  judge.decide();
  for (int left = options_.lock_steps; left > 0; --left) {
    ++step_;
    hear(judge, with(calm_, 8, 9), with(usual_, 8, 0.2));  // its norm is bad too
    const Ruling& ruling = judge.decide();
    EXPECT_TRUE(ruling.decision.futile.empty());
    EXPECT_TRUE(ruling.units.empty()) << "in recovery it is not told";
    EXPECT_EQ(copy(ruling.decision.released), left == 1 ? Units{8} : Units{});
  }
  ++step_;
  hear(judge, calm_, with(usual_, 8, 0.2));
  EXPECT_EQ(copy(judge.decide().decision.admitted), (Units{8}));
  EXPECT_EQ(judge.controller().steps_left(8), 2u * static_cast<std::uint32_t>(options_.lock_steps));
}

TEST_F(JudgeScene, FailedCallsSayWhatWasExpected) {
  Judge judge = make(Selector::trial);
  EXPECT_EQ(message_of([&] { judge.decide(); }), "expected hear() before decide()");
  EXPECT_EQ(message_of([&] { judge.hear({.step = 30, .norms = calm_}, std::vector<double>(5)); }),
            "[step 30] expected 1 errors for each of 12 units or none, got 5");
  EXPECT_EQ(message_of([&] { hear(judge, calm_, with(usual_, 7, -1)); }),
            "[step 30] expected errors that are not negative, got -1 for place 0 of unit `u7`");
  hear(judge, calm_);
  EXPECT_NE(message_of([&] { conclude(judge, calm_, usual_); }), "") << "no trial was asked for";
  EXPECT_NE(message_of([&] { hear(judge, calm_); }), "") << "a step is being heard";
}

// What a judge tells its controller.
TEST(Candidates, OnlyFreeOnesAreAdmittedAndOddListsAreRefused) {
  Options options;
  options.max_o = 2;
  Controller controller({{.name = "a"}, {.name = "b", .forced = true}, {.name = "c"}, {.name = "d"}}, options);
  const std::vector<double> norms(4, 1.0);
  const auto decide = [&](std::vector<Candidate> candidates, bool common = false) {
    return controller.decide_among(candidates, common);
  };
  EXPECT_NE(message_of([&] { decide({}); }), "") << "nothing is pending";
  controller.observe({.step = 1, .norms = norms});
  EXPECT_NE(message_of([&] { decide({{.severity = 2, .unit = 2}, {.severity = 2, .unit = 0}}); }), "");
  EXPECT_NE(message_of([&] { decide({{.severity = 2, .unit = 2}, {.severity = 2, .unit = 2}}); }), "");
  EXPECT_NE(message_of([&] { decide({{.severity = 2, .unit = 4}}); }), "");
  EXPECT_NE(message_of([&] { decide({{.severity = kNan, .unit = 0}}); }), "");
  EXPECT_EQ(copy(decide({{.severity = 2, .unit = 0}, {.severity = 9, .unit = 1}}).admitted), (Units{0}));
  EXPECT_TRUE(controller.is_free(2) && !controller.is_free(0) && !controller.is_free(1));
  controller.observe({.step = 2, .norms = norms});
  const Decision second = decide({{.severity = 9, .unit = 0}, {.severity = 2, .unit = 2}, {.severity = 3, .unit = 3}});
  EXPECT_EQ(copy(second.admitted), (Units{3}));
  EXPECT_EQ(copy(second.denied), (Units{2}));
  controller.observe({.step = 3, .norms = norms});
  EXPECT_TRUE(decide({}, true).common);
}

TEST(JudgeSettings, WhatMakesNoSenseIsRefused) {
  const std::vector<Unit> units{{.name = "a"}};
  Options options;
  EXPECT_THROW(Judge(units, options, {.places = 0}), Error);
  EXPECT_THROW(Judge(units, options, {.places = 17}), Error);
  EXPECT_THROW(Judge(units, options, {.places = 2, .expected = {0.1}}), Error);
  EXPECT_THROW(Judge(units, options, {.places = 1, .expected = {-0.1}}), Error);
  EXPECT_THROW(Judge(units, options, {.places = 1, .expected = {kInfinity}}), Error);
  EXPECT_EQ(Judge(units, options).selector(), Selector::norms);
  options.selector = Selector::trial;
  EXPECT_NE(message_of([&] { Judge(units, options, {}); }).find("`selector`"), std::string::npos);
  options.selector = Selector::norms;
  options.guard = Guard::replay;
  EXPECT_NE(message_of([&] { Judge(units, options, {}); }).find("`guard`"), std::string::npos);
  EXPECT_NO_THROW(Judge(units, options, {.can_rerun = true}));
}

}  // namespace
}  // namespace gnmr
