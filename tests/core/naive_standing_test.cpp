// SPDX-License-Identifier: Apache-2.0
// Scenes of "Standing recovery" of docs/algorithm.md by hand, for the naive second implementation.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "naive_judge_gated.h"

namespace gnmr::naive {
namespace {

using Indices = std::vector<std::size_t>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kUsual = 0x1p-6;    // its level is -6
constexpr double kOffence = 0x1p-2;  // its level is -2: the key is 2^8 among units with the usual error

TEST(NaiveLevels, LogarithmAndItsInverse) {
  EXPECT_EQ(lg(1), 0);
  EXPECT_EQ(lg(1.5), 0.5);
  EXPECT_EQ(lg(0.75), -0.5);
  EXPECT_EQ(lg(16), 4);
  EXPECT_EQ(lg(0x1p-20), -20);
  EXPECT_EQ(lg(0x1.8p-1074), -1073.0);  // rounded to 2^-1073 before
  EXPECT_DOUBLE_EQ(lg(0.2), -2.4);      // 1.6 * 2^-3
  EXPECT_EQ(ex(0), 1);
  EXPECT_EQ(ex(0.5), 1.5);
  EXPECT_EQ(ex(-0.5), 0.75);
  EXPECT_EQ(ex(48), 0x1p48);
  for (const double x : {1.25, 3.0, 0.0625, 0.203125, 1000.0}) {
    EXPECT_EQ(ex(lg(x)), x);
  }
}

// One site whose errors are given.
class OneLevel {
 public:
  void take(int count, double error) {
    for (int i = 0; i < count; ++i) {
      levels_.take_in(next_, 0, 0, error);
      next_ = next_ + 1;
    }
  }
  void wait(int decisions) { next_ = next_ + decisions; }
  std::optional<double> known() const { return levels_.known(next_, 0, 0); }
  std::int64_t n() const { return levels_.n(0, 0); }
  double l() const { return levels_.l(0, 0); }

 private:
  Levels levels_ = Levels({{.name = "a", .cost = 1, .group = "", .forced = false}}, Options{}, 1);
  std::int64_t next_ = 0;
};

TEST(NaiveLevels, AreKnownFromTwentyErrorsOn) {
  OneLevel level;
  level.take(1, 0.25);
  EXPECT_NEAR(level.l(), -0.1, 1e-14);  // 0.05 * -2
  level.take(18, 0.25);
  EXPECT_EQ(level.known(), std::nullopt);
  level.take(1, 0.25);
  EXPECT_NEAR(level.known().value(), -2, 1e-14);
  level.take(2000, 0.5);  // the weight becomes 0
  EXPECT_NEAR(level.known().value(), -1, 1e-14);
}

TEST(NaiveLevels, OneErrorMovesAKnownLevelByTheWeightOfOneAtMost) {
  OneLevel early;
  early.take(19, 0.25);
  early.take(1, 16);
  // Of 20 errors the last has the weight 0.05 / (1 - 0.95^20) = 0.0779406; it enters as 4.
  EXPECT_NEAR(early.known().value(), -2 + 6 * 0.0779406, 1e-6);
  OneLevel late;
  late.take(20, 0.25);
  late.take(1, 16);  // enters as -1, with the weight 0.05 / (1 - 0.95^21) = 0.0758221
  EXPECT_NEAR(late.known().value(), -2 + 0.0758221, 1e-6);
  OneLevel down;
  down.take(20, 0.25);
  down.take(1, 0);
  EXPECT_NEAR(down.known().value(), -2 - 0.0758221, 1e-6);
}

TEST(NaiveLevels, ErrorsEnterBetweenTwoToTheMinusTwentyAndSixteen) {
  OneLevel large;
  large.take(20, kInf);
  EXPECT_NEAR(large.known().value(), 4, 1e-14);
  for (const double error : {0.0, -0.0, 1e-300}) {
    OneLevel small;
    small.take(20, error);
    EXPECT_NEAR(small.known().value(), -20, 1e-13) << error;
  }
}

TEST(NaiveLevels, AreForgottenAfterTwoHundredDecisionsWithoutAnError) {
  OneLevel level;
  level.take(20, 0.25);
  level.wait(199);
  EXPECT_TRUE(level.known().has_value());
  OneLevel other = level;
  other.take(1, 0.25);
  EXPECT_EQ(other.n(), 21);
  level.wait(1);
  EXPECT_EQ(level.known(), std::nullopt);
  level.take(1, 0.25);
  EXPECT_EQ(level.n(), 1);
  EXPECT_NEAR(level.l(), -0.1, 1e-14);
}

std::vector<Unit> plain_units(std::size_t count) {
  std::vector<Unit> units;
  for (std::size_t index = 0; index < count; ++index) {
    units.push_back({.name = "u" + std::to_string(index), .cost = 1, .group = "", .forced = false});
  }
  return units;
}

// Units with norms of 1 and usual errors, but for an offender: unit 0. A test changes what it wants before the first
// step, and norms and errors at any time.
class NaiveStanding : public ::testing::Test {
 protected:
  NaiveStanding() {
    options_.selector = "norms";
    options_.max_o = 1;
    set_units(plain_units(6));
    errors_[0] = kOffence;
  }

  void set_units(std::vector<Unit> units) {
    units_ = std::move(units);
    norms_.assign(units_.size(), 1.0);
    errors_.assign(units_.size() * expected_.size(), kUsual);
  }

  // The next decision.
  Decision step() {
    if (!judge_) {
      judge_.emplace(units_, options_, expected_, /*can_rerun=*/true);
    }
    const Hearing hearing = judge_->hear(norms_, errors_, /*may_rerun=*/true);
    EXPECT_NE(hearing.action, "trial");
    return judge_->decide().decision;
  }

  // The decision of that number; in none before it does anything happen.
  Decision decision(std::int64_t number) {
    while (!judge_ || judge_->decisions() < number) {
      const Decision before = step();
      EXPECT_EQ(before.standing, standing_) << "decision " << judge_->decisions() - 1;
      EXPECT_TRUE(before.admitted.empty() && before.denied.empty() && before.released.empty())
          << "decision " << judge_->decisions() - 1;
    }
    const Decision result = step();
    standing_ = result.standing;
    return result;
  }

  // The decision of that number, in which one unit's norm rises.
  Decision decision_with_rise(std::int64_t number, std::size_t unit) { return decision_with_norm(number, unit, 9.0); }
  Decision decision_with_norm(std::int64_t number, std::size_t unit, double norm) {
    decision(number - 1);
    const Norms before = norms_;
    norms_[unit] = norm;
    const Decision result = decision(number);
    norms_ = before;
    return result;
  }

  std::vector<Unit> units_;
  Options options_;
  std::vector<double> expected_ = {0.0};
  Norms norms_;
  Errors errors_;
  std::optional<Judge> judge_;
  Indices standing_;
};

TEST_F(NaiveStanding, APermanentOffenderIsAdmittedAtTheFirstReviewThatKnowsTwentyErrors) {
  const Decision first = decision(39);  // in decision 19 there were 19 errors
  EXPECT_EQ(first.standing, Indices{0});
  EXPECT_EQ(first.recovered, Indices{0});
  EXPECT_TRUE(first.admitted.empty() && first.denied.empty() && first.released.empty() && first.futile.empty());
  EXPECT_NEAR(judge_->controller().key(0), 256, 1e-9);
  EXPECT_EQ(judge_->controller().steps_left(0), 0);
  EXPECT_EQ(decision(400).standing, Indices{0}) << "there is no lock";
}

TEST_F(NaiveStanding, ItHoldsForEverySelector) {
  for (const char* selector : {"norms", "evidence", "evidence-alarm", "trial"}) {
    options_.selector = selector;
    judge_.reset();
    standing_.clear();
    EXPECT_EQ(decision(39).standing, Indices{0}) << selector;
  }
}

TEST_F(NaiveStanding, WithoutCoarseErrorNobodyIs) {
  options_.coarse_error = 0;
  EXPECT_TRUE(decision(200).standing.empty());
  EXPECT_TRUE(judge_->measure(0).empty());
}

TEST_F(NaiveStanding, ErrorsThatAreAlikeAreNobodysFault) {
  errors_.assign(6, kOffence);
  EXPECT_TRUE(decision(200).standing.empty());
}

TEST_F(NaiveStanding, AlikeAndAboveTheLimitIsEnoughWithAFactorOfOne) {
  options_.coarse_factor = 1;
  options_.max_o = 2;
  errors_.assign(6, kOffence);
  EXPECT_EQ(decision(39).standing, (Indices{0, 1})) << "the keys are all 1: lowest index first";
  EXPECT_EQ(judge_->controller().key(1), 1);
}

TEST_F(NaiveStanding, FarAboveTheOthersButBelowTheLimitIsNotCoarse) {
  errors_[0] = 0.19;
  EXPECT_TRUE(decision(200).standing.empty());
}

TEST_F(NaiveStanding, FourKnownLevelsHaveNoMedian) {
  errors_[4] = errors_[5] = kNan;
  EXPECT_TRUE(decision(199).standing.empty());
  errors_[4] = kUsual;
  EXPECT_EQ(decision(239).standing, Indices{0}) << "it has twenty errors before decision 220";
}

TEST_F(NaiveStanding, TheMedianIsTheLowerOfTwo) {
  errors_ = {0.25, 0.25, 0.25, 0x1p-6, 0x1p-6, 0x1p-6};
  options_.max_o = 3;
  EXPECT_EQ(decision(39).standing, (Indices{0, 1, 2}));
  EXPECT_NEAR(judge_->controller().key(2), 256, 1e-9);
}

TEST_F(NaiveStanding, AUnitInStandingRecoveryMayFallToThreeQuartersOfBothLimits) {
  // Limits 0.2 and 0.15, levels -2.4 and -2.8: an error of 0.16 has the level -2.72, one of 0.14 the level -2.88.
  decision(39);
  errors_[0] = 0.16;
  EXPECT_EQ(decision(399).standing, Indices{0});
  errors_[0] = 0.14;
  EXPECT_EQ(decision(419).released, Indices{0}) << "after 19 errors at -2.88 + 0.16 * 0.95^19 = -2.82";
  errors_[0] = 0.16;
  EXPECT_TRUE(decision(799).standing.empty()) << "below the limit of those that are not in recovery";
  // Twice and 1.5 times the others, 1 and 0.5 above their level: 0.8 above it is 1.8 times.
  judge_.reset();
  errors_.assign(6, 0.25);
  errors_[0] = 0.75;  // 1.5 above
  EXPECT_EQ(decision(39).standing, Indices{0});
  errors_[0] = 0.45;
  EXPECT_EQ(decision(399).standing, Indices{0});
  errors_[0] = 0.35;  // 0.4 above: after 19 errors it is 0.4 + 0.4 * 0.95^19 = 0.55 above, after 39 errors 0.45
  EXPECT_EQ(decision(439).released, Indices{0});
  errors_[0] = 0.45;
  EXPECT_TRUE(decision(799).standing.empty());
}

TEST_F(NaiveStanding, ErrorsThatGetNormalEndItInAReview) {
  decision(39);
  errors_[0] = kUsual;
  // From decision 40 on each error takes its weight, 0.057 to 0.0525, from the level: 19 of them 1.03. It must fall by
  // 0.8.
  const Decision last = decision(59);
  EXPECT_EQ(last.released, Indices{0});
  EXPECT_TRUE(last.standing.empty() && last.recovered.empty() && last.futile.empty());
  EXPECT_TRUE(decision(200).standing.empty());
}

TEST_F(NaiveStanding, TheHighestKeysComeFirstThenTheLowestIndex) {
  options_.max_o = 2;
  set_units(plain_units(9));
  errors_[2] = 0.5;
  errors_[5] = errors_[7] = errors_[8] = 0.25;
  EXPECT_EQ(decision(39).standing, (Indices{2, 5}));
  EXPECT_NEAR(judge_->controller().key(2), 1024, 1e-8);
}

TEST_F(NaiveStanding, CostsDivideTheKeyWhereTheyAreLimited) {
  units_[0].cost = 5;
  EXPECT_EQ(decision(39).standing, Indices{0});
  EXPECT_NEAR(judge_->controller().key(0), 256, 1e-9);
  judge_.reset();
  standing_.clear();
  options_.max_cost = 0.9;
  errors_[3] = 0.125 * 1.8;  // -2.2: 2 * 3.8 = 7.6 makes a key of 2^7 * 1.6 = 204.8
  EXPECT_EQ(decision(39).standing, Indices{3});
  EXPECT_NEAR(judge_->controller().key(3), 204.8, 1e-9);
}

TEST_F(NaiveStanding, TheWorstSiteMakesTheKey) {
  expected_ = {0.0, 0.0};
  set_units(plain_units(6));
  errors_[2 * 2 + 0] = 0.5;   // 1024, among errors of 2^-6
  errors_[2 * 4 + 1] = 0.25;  // site 1: 2^16, among errors of 2^-10
  for (std::size_t unit = 0; unit < 6; ++unit) {
    if (unit != 4) errors_[2 * unit + 1] = 0x1p-10;
  }
  EXPECT_EQ(decision(39).standing, Indices{4});
  EXPECT_NEAR(judge_->controller().key(4), 65536, 1e-6);
}

TEST_F(NaiveStanding, InfiniteErrorsAndZerosCountAsSixteenAndAMillionth) {
  errors_ = {kInf, 0, 0, 0, 0, 0};
  EXPECT_EQ(decision(39).standing, Indices{0});
  EXPECT_NEAR(judge_->controller().key(0) / 0x1p48, 1, 1e-9);
}

TEST_F(NaiveStanding, ACandidateTakesItsPlace) {
  decision(39);
  const Decision taken = decision_with_rise(45, 3);
  EXPECT_EQ(taken.admitted, Indices{3});
  EXPECT_EQ(taken.released, Indices{0});
  EXPECT_EQ(taken.displaced, Indices{0});
  EXPECT_EQ(taken.recovered, Indices{3});
  EXPECT_TRUE(taken.standing.empty() && taken.futile.empty() && taken.denied.empty());
  EXPECT_EQ(decision(55).released, Indices{3}) << "it was locked for ten steps";
  EXPECT_EQ(decision(59).standing, Indices{0}) << "there is room again";
}

TEST_F(NaiveStanding, TheLowestKeyGoesFirstThenTheHighestIndex) {
  options_.max_o = 3;
  errors_[1] = errors_[4] = 0.21;
  EXPECT_EQ(decision(39).standing, (Indices{0, 1, 4}));
  EXPECT_EQ(decision_with_rise(45, 3).displaced, Indices{4});
  EXPECT_EQ(decision_with_rise(47, 5).displaced, Indices{1});
  EXPECT_EQ(decision_with_rise(49, 2).displaced, Indices{0});
}

TEST_F(NaiveStanding, AsManyGoAsTheCandidateNeeds) {
  for (const std::int64_t cost : {4, 5}) {
    judge_.reset();
    standing_.clear();
    options_.max_o = 3;
    options_.max_cost = 0.5;  // of 12 or 13: 6
    units_[3].cost = cost;
    units_[1].cost = 2;
    units_[2].cost = 3;
    errors_[0] = kUsual;
    errors_[1] = errors_[2] = kOffence;  // keys 256 / 2 and 256 / 3
    EXPECT_EQ(decision(39).standing, (Indices{1, 2}));
    const Decision taken = decision_with_rise(45, 3);
    EXPECT_EQ(taken.admitted, Indices{3});
    EXPECT_EQ(taken.released, cost == 4 ? Indices{2} : (Indices{1, 2}));
  }
}

TEST_F(NaiveStanding, NoneEndsWhereItWouldNotHelp) {
  options_.max_o = 2;
  options_.group_max = 1;
  units_[3].group = units_[4].group = "b";
  decision(39);
  EXPECT_EQ(decision_with_rise(45, 3).admitted, Indices{3});
  const Decision denied = decision_with_rise(46, 4);
  EXPECT_EQ(denied.denied, Indices{4});
  EXPECT_EQ(denied.standing, Indices{0});
  EXPECT_TRUE(denied.released.empty());
}

TEST_F(NaiveStanding, TheLowestKeyGoesFirstWhateverItsGroupAndAReviewAdmitsItAgain) {
  options_.max_o = 3;
  options_.group_max = 1;
  units_[1].group = units_[3].group = "b";
  errors_[0] = 0.21;
  errors_[1] = kOffence;
  EXPECT_EQ(decision(39).standing, (Indices{0, 1}));
  const Decision taken = decision_with_rise(59, 3);
  EXPECT_EQ(taken.released, (Indices{0, 1}));
  EXPECT_EQ(taken.displaced, (Indices{0, 1}));
  EXPECT_EQ(taken.standing, Indices{0});
  EXPECT_EQ(taken.recovered, (Indices{0, 3}));
}

TEST_F(NaiveStanding, AUnitThatWasDisplacedForNothingIsAdmittedAgainAtThreeQuarters) {
  options_.max_o = 3;
  options_.group_max = 1;
  units_[1].group = units_[3].group = "b";
  errors_[1] = 0.5;
  EXPECT_EQ(decision(39).standing, (Indices{0, 1}));
  errors_[0] = 0.16;
  const Decision taken = decision_with_rise(399, 3);
  EXPECT_EQ(taken.displaced, (Indices{0, 1}));
  EXPECT_EQ(taken.admitted, Indices{3});
  EXPECT_EQ(taken.recovered, (Indices{0, 3}));
  EXPECT_EQ(taken.standing, Indices{0}) << "the group of unit 1 had no room; 0.16 is above 0.75 times 0.2";
}

TEST_F(NaiveStanding, AReplacementHasAKeyAbove125PercentAndWaitsForAHundredDecisions) {
  // 0.26 is 0.04 above the level of 0.25: the key is 1.08 times that one; 0.29 is 0.16 above it: 1.32 times.
  for (const double error : {0.26, 0.29}) {
    judge_.reset();
    standing_.clear();
    errors_[4] = kNan;
    EXPECT_EQ(decision(39).standing, Indices{0});
    errors_[4] = error;  // known from decision 60 on
    const Decision second = decision(139);
    EXPECT_EQ(second.standing, error == 0.29 ? Indices{4} : Indices{0});
    EXPECT_EQ(second.released, error == 0.29 ? Indices{0} : Indices{});
    EXPECT_EQ(second.replaced, second.released);
    EXPECT_EQ(decision(300).standing, second.standing);
  }
}

TEST_F(NaiveStanding, ItIsReplacedOnlyWhereTheOtherThenFits) {
  options_.max_cost = 0.5;  // of 9: 4
  units_[4].cost = 4;
  units_[3].group = units_[4].group = "b";
  options_.group_max = 1;
  options_.max_o = 2;
  errors_[3] = kOffence;
  errors_[4] = kNan;
  EXPECT_EQ(decision(39).standing, (Indices{0, 3}));
  errors_[4] = 16;  // 2^20 / 4
  EXPECT_EQ(decision(300).standing, (Indices{0, 3})) << "two would have to end";
  EXPECT_GT(judge_->levels().known(301, 4, 0).value(), 3);
}

TEST_F(NaiveStanding, OnlyTheLowestKeyMayBeReplaced) {
  set_units(plain_units(8));
  errors_[0] = kOffence;
  options_.max_o = 2;
  errors_[1] = errors_[4] = kNan;
  EXPECT_EQ(decision(39).standing, Indices{0});
  errors_[1] = 0.21;  // a lower key
  EXPECT_EQ(decision(79).standing, (Indices{0, 1}));
  errors_[4] = 1;  // 2^12
  decision(178);
  const Decision later = decision(179);  // unit 1 has lasted a hundred decisions; unit 0 had in decision 139
  EXPECT_EQ(later.released, Indices{1});
  EXPECT_EQ(later.standing, (Indices{0, 4}));
}

TEST_F(NaiveStanding, ACommonStepIsNoReview) {
  set_units(plain_units(12));
  errors_[0] = kOffence;
  decision(38);
  norms_.assign(12, 9.0);
  const Decision common = decision(39);
  EXPECT_TRUE(common.common && common.standing.empty());
  norms_.assign(12, 1.0);
  EXPECT_EQ(decision(59).standing, Indices{0});
  errors_[0] = kUsual;
  decision(78);
  norms_.assign(12, 9.0);
  EXPECT_EQ(decision(79).standing, Indices{0}) << "nothing ends either";
  norms_.assign(12, 1.0);
  EXPECT_EQ(decision(99).released, Indices{0});
}

TEST_F(NaiveStanding, ADecisionWithoutSamplesIsNoReview) {
  decision(38);
  norms_.assign(6, std::nullopt);
  EXPECT_TRUE(decision(39).standing.empty());
  norms_.assign(6, 1.0);
  EXPECT_EQ(decision(59).standing, Indices{0});
}

TEST_F(NaiveStanding, TwoHundredDecisionsWithoutAnErrorEndIt) {
  decision(39);
  errors_[0] = kNan;
  const Decision last = decision(259);  // 39 is not one of the 200 decisions before 259; the review before is 239
  EXPECT_EQ(last.released, Indices{0});
  EXPECT_EQ(judge_->levels().n(0, 0), 40);
  errors_[0] = kOffence;
  EXPECT_EQ(decision(299).standing, Indices{0}) << "twenty errors from decision 260 on";
}

TEST_F(NaiveStanding, ItsReleaseIsNeverFutileAndStartsNoWaitNorRelapse) {
  options_.max_o = 2;
  EXPECT_EQ(decision_with_rise(22, 0).admitted, Indices{0});
  EXPECT_EQ(decision(32).released, Indices{0});
  EXPECT_EQ(decision(39).standing, Indices{0});
  errors_[0] = kUsual;
  const Decision last = decision_with_rise(59, 0);
  EXPECT_EQ(last.released, Indices{0});
  EXPECT_TRUE(last.futile.empty());
  EXPECT_EQ(last.admitted, Indices{0}) << "it is no longer in recovery and does not wait";
  EXPECT_EQ(judge_->controller().steps_left(0), 10) << "its release was 27 samples ago: no relapse";
}

TEST_F(NaiveStanding, ARiskOfAUnitInStandingRecoveryMakesNoCandidate) {
  decision(39);
  const Decision risk = decision_with_rise(45, 0);
  EXPECT_TRUE(risk.signals[0].at_risk);
  EXPECT_TRUE(risk.admitted.empty() && risk.denied.empty());
  EXPECT_EQ(risk.standing, Indices{0});
}

TEST_F(NaiveStanding, AUnitThatWaitsIsAdmitted) {
  EXPECT_EQ(decision_with_rise(22, 0).admitted, Indices{0});
  decision(31);
  norms_[0] = 30.0;
  const Decision futile = decision(32);
  EXPECT_EQ(futile.futile, Indices{0});
  norms_[0] = 1.0;
  EXPECT_EQ(decision(39).standing, Indices{0});
  EXPECT_EQ(judge_->controller().wait(0), 50 - 7) << "which goes on";
}

TEST_F(NaiveStanding, AReviewMayAdmitWhomItsDecisionReleases) {
  EXPECT_EQ(decision_with_rise(29, 0).admitted, Indices{0});
  const Decision both = decision(39);
  EXPECT_EQ(both.released, Indices{0});
  EXPECT_EQ(both.standing, Indices{0});
  EXPECT_TRUE(both.admitted.empty());
}

TEST_F(NaiveStanding, LimitsOfCostAndGroupsHold) {
  options_.max_o = 4;
  options_.group_max = 1;
  options_.max_cost = 0.5;
  units_ = plain_units(9);
  units_[0].cost = 6;  // of 14: more than 7 with unit 1
  units_[1].cost = 2;
  units_[2].group = units_[3].group = "b";
  norms_.assign(9, 1.0);
  errors_.assign(9, kUsual);
  errors_[0] = 1;    // 2^12 / 6 = 683
  errors_[1] = 0.5;  // 1024 / 2 = 512
  errors_[2] = 0.25;
  errors_[3] = 0.3;  // above unit 2
  const Decision first = decision(39);
  EXPECT_EQ(first.standing, (Indices{0, 3})) << "6 and 1 of 7";
  EXPECT_TRUE(first.denied.empty());
}

TEST_F(NaiveStanding, AForcedUnitIsAPeerButIsNotAdmitted) {
  units_[5].forced = true;
  options_.max_o = 3;
  errors_[4] = kNan;
  errors_[5] = kOffence;
  EXPECT_EQ(decision(39).standing, Indices{0});
  judge_.reset();
  standing_.clear();
  errors_[5] = kNan;
  EXPECT_TRUE(decision(99).standing.empty()) << "four levels without it";
}

TEST_F(NaiveStanding, AUnitThatFillsHasTheSquaresBeyondTheMediansAsItsKey) {
  options_.max_o = 3;
  errors_ = {0.5, 0.25, 0.375, 0.1875, 0.1875, 0.1875};  // coarse: 0.5 alone
  EXPECT_EQ(decision(39).standing, (Indices{0, 1, 2}));
  EXPECT_EQ(judge_->controller().standing_for(0), RiskKind::coarse);
  EXPECT_EQ(judge_->controller().standing_for(1), RiskKind::fill);
  EXPECT_NEAR(judge_->controller().key(1), 0.0625 - 0.03515625, 1e-12);
  EXPECT_NEAR(judge_->controller().key(2), 0.140625 - 0.03515625, 1e-12);
}

TEST_F(NaiveStanding, NobodyFillsWhereNobodyIsCoarse) {
  options_.max_o = 3;
  errors_ = {0.35, 0.25, 0.3, 0.1875, 0.1875, 0.1875};
  EXPECT_TRUE(decision(199).standing.empty());
}

TEST_F(NaiveStanding, ACandidateTakesThePlaceOfTheFillingUnitWithTheLowestKey) {
  options_.max_o = 3;
  errors_ = {0.5, 0.25, 0.375, 0.1875, 0.1875, 0.1875};
  decision(39);
  const Decision result = decision_with_rise(45, 4);
  EXPECT_EQ(result.admitted, Indices{4});
  EXPECT_EQ(result.released, Indices{1});
  EXPECT_EQ(result.standing, (Indices{0, 2}));
}

TEST_F(NaiveStanding, ACoarseUnitTakesThePlaceOfAFillingOneAtOnce) {
  options_.max_o = 2;
  errors_ = {0.5, 0.25, 0.375, 0.1875, 0.1875, 0.1875};
  EXPECT_EQ(decision(39).standing, (Indices{0, 2}));
  errors_[5] = 4;  // from then on its level rises by a twentieth per decision: 1 above the median after 20
  EXPECT_EQ(decision(79).standing, (Indices{0, 5}));
  EXPECT_EQ(judge_->controller().standing_for(5), RiskKind::coarse);
}

TEST_F(NaiveStanding, ThePlanOfAPlainStepNamesWhomItMeasures) {
  options_.max_o = 2;
  decision(39);
  decision_with_rise(45, 3);  // acute, until decision 55
  EXPECT_EQ(judge_->measure(40), Indices{0});
  EXPECT_EQ(judge_->measure(60), Indices{0});
  EXPECT_EQ(judge_->measure(57), Indices{3});
  EXPECT_EQ(judge_->measure(-3), Indices{3});
  for (const std::int64_t step : {41, 42, 43, 44, 55, 56, 58, 59}) {
    EXPECT_TRUE(judge_->measure(step).empty()) << step;
  }
}

// With trials the test has both runs of a step.
class NaiveStandingTrials : public NaiveStanding {
 protected:
  NaiveStandingTrials() {
    options_.selector = "trial";
    decision(38);
  }

  // Decision 39, by a trial.
  Ruling trial(const Norms& norms, const Errors& patrol, const Errors& errors) {
    EXPECT_EQ(judge_->hear(norms, patrol, /*may_rerun=*/true).action, "trial");
    return judge_->conclude(norms, errors);
  }

  Norms with_nan() const {
    Norms norms = norms_;
    norms[3] = kNan;
    return norms;
  }
};

TEST_F(NaiveStandingTrials, AStepThatATrialFindsCommonIsNoReview) {
  const Ruling ruling = trial(with_nan(), errors_, errors_);
  EXPECT_EQ(ruling.verdict, "common");
  EXPECT_TRUE(ruling.decision.standing.empty());
  EXPECT_EQ(decision(59).standing, Indices{0});
}

TEST_F(NaiveStandingTrials, TheCandidatesOfATrialComeFirst) {
  Errors errors = errors_;
  errors[3] = 1;
  const Ruling ruling = trial(with_nan(), errors_, errors);
  EXPECT_EQ(ruling.verdict, "numeric");
  EXPECT_EQ(ruling.decision.admitted, Indices{3});
  EXPECT_TRUE(ruling.decision.standing.empty()) << "there is no room";
}

TEST_F(NaiveStandingTrials, LevelsLearnTheErrorsOfTheTrialOutliersIncluded) {
  Errors errors = errors_;
  errors[3] = 1;
  const double l = judge_->levels().l(3, 0);
  const double level = judge_->levels().known(39, 3, 0).value();
  trial(with_nan(), Errors(6, 16.0), errors);
  EXPECT_EQ(judge_->levels().n(3, 0), 40);
  EXPECT_EQ(judge_->levels().l(3, 0), 0.95 * l + (1 - 0.95) * (level + 1));
  EXPECT_NEAR(judge_->levels().known(40, 2, 0).value(), -6, 1e-13);
}

TEST_F(NaiveStandingTrials, WhereAcuteRecoveriesHaveAllPlacesAnErrorCallsNoTrial) {
  Errors errors = errors_;
  errors[3] = 1;
  trial(with_nan(), errors_, errors);  // admits unit 3 for ten steps
  errors = errors_;
  errors[4] = 1;
  for (int left = 9; left > 0; --left) {
    judge_->hear(norms_, errors_, /*may_rerun=*/true);
    EXPECT_EQ(judge_->controller().steps_left(3), left + 1);
    judge_->withdraw();
    const Hearing hearing = judge_->hear(norms_, errors, /*may_rerun=*/true);
    EXPECT_EQ(hearing.action, "proceed") << left;
    EXPECT_TRUE(hearing.alarmed && hearing.spent) << left;
    judge_->withdraw();
    EXPECT_EQ(judge_->hear(with_nan(), errors, /*may_rerun=*/true).action, "trial") << "to save the weights";
    judge_->withdraw();
    judge_->hear(norms_, errors, /*may_rerun=*/true);
    EXPECT_EQ(judge_->decide().decision.denied, Indices{4});
  }
  EXPECT_EQ(judge_->hear(norms_, errors, /*may_rerun=*/true).action, "trial") << "the decision ends the recovery";
}

// With a gate.
class NaiveStandingGated : public ::testing::Test {
 protected:
  NaiveStandingGated() : judge_(plain_units(6), options(), {0.0}, /*can_rerun=*/true) { errors_[0] = kOffence; }

  static Options options() {
    Options options;
    options.selector = "trial";
    options.lag = 1;
    options.max_o = 1;
    return options;
  }

  // Runs the step and takes the decision of the one before.
  Plan run(std::int64_t number, const Norms& norms) {
    judge_.plan(number);
    const Plan plan = judge_.begin(/*forbidden=*/false);
    const bool held = judge_.closes(norms, {});
    if (number > 0) {
      settled_ = judge_.settle(norms_, errors_, held_);
    }
    norms_ = norms;
    held_ = held;
    return plan;
  }

  GatedJudge judge_;
  Errors errors_ = Errors(6, kUsual);
  Norms norms_;
  bool held_ = false;
  Settled settled_;
};

TEST_F(NaiveStandingGated, ADecisionOfAHeldStepIsNoReview) {
  Norms bad(6, 1.0);
  bad[3] = kNan;
  for (std::int64_t number = 0; number <= 60; ++number) {
    const Plan plan = run(number, number == 39 ? bad : Norms(6, 1.0));
    EXPECT_TRUE(plan.measure.empty());
    EXPECT_EQ(held_, number == 39);
    EXPECT_EQ(plan.pass, number == 41 ? "trial" : "plain");
    EXPECT_EQ(settled_.ruling.decision.standing, number == 60 ? Indices{0} : Indices{}) << number;
  }
  EXPECT_EQ(judge_.levels().n(0, 0), 59) << "nothing is learned from a held step";
}

TEST_F(NaiveStandingGated, ItHoldsInTheStepAfterTheNextAndIsMeasuredThen) {
  Norms bad(6, 1.0);
  bad[3] = kNan;
  for (std::int64_t number = 0; number <= 100; ++number) {
    const Plan plan = run(number, number == 78 ? bad : Norms(6, 1.0));
    EXPECT_EQ(plan.high[0], number >= 41);
    const bool trial = number == 80;
    EXPECT_EQ(plan.pass, trial ? "trial" : "plain");
    EXPECT_EQ(plan.measure, number >= 41 && number % 20 == 0 && !trial ? Indices{0} : Indices{}) << number;
  }
}

}  // namespace
}  // namespace gnmr::naive
