// SPDX-License-Identifier: Apache-2.0
// Saving and restoring a judge: changed options, places and units; bad states. That it goes on bit for bit is in
// judge_test.cpp.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "gnmr/core/error.h"
#include "gnmr/core/judge.h"

namespace gnmr {
namespace {

class JudgeStateChange : public ::testing::Test {
 protected:
  JudgeStateChange() : judge_(units_, options(), settings()) {
    const std::vector<double> norms(6, 1.0);
    for (int step = 0; step < 40; ++step) {
      std::vector<double> errors;
      for (int i = 0; i < 12; ++i) errors.push_back(0.01 * (i + 1));
      if (step > 30) errors[3] = 0.9;  // unit b, place 1
      const Hearing& hearing = judge_.hear({.step = step, .norms = norms}, errors);
      if (hearing.action == Action::trial) {
        judge_.conclude({.step = step, .norms = norms}, errors);
      } else {
        judge_.decide();
      }
    }
    EXPECT_GT(judge_.controller().steps_left(1), 0u);
  }

  static Options options() {
    Options options;
    options.max_o = 3;
    return options;
  }
  static JudgeSettings settings() { return {.places = 2, .expected = {}, .can_rerun = true}; }

  const std::vector<Unit> units_{{.name = "a"}, {.name = "b"}, {.name = "c"},
                                 {.name = "d"}, {.name = "e"}, {.name = "f"}};
  Judge judge_;
};

TEST_F(JudgeStateChange, WhatIsSavedIsWhatIsRestored) {
  Judge other(units_, options(), settings());
  const JudgeState state = judge_.save();
  EXPECT_EQ(state.places, 2u);
  EXPECT_EQ(state.errors.size(), 12u);
  EXPECT_EQ(state.reruns_ago, (std::vector<std::uint32_t>{8}));  // the trial of step 31
  EXPECT_EQ(state.controller.units[1].admitted_for, RiskKind::error);
  EXPECT_TRUE(other.restore(state).exact());
  EXPECT_EQ(other.save(), state);
  EXPECT_EQ(other.reruns_left(), 19u);
}

TEST_F(JudgeStateChange, AChangedErrorBetaStartsTheErrorsAfreshAndNothingElse) {
  Options changed = options();
  changed.error_beta = 0.5;
  Judge other(units_, changed, settings());
  const RestoreReport report = other.restore(judge_.save());
  EXPECT_TRUE(report.error_beta_changed && !report.exact() && !report.places_changed);
  const JudgeState state = other.save();
  EXPECT_EQ(state.errors, std::vector<ErrorState>(12));
  EXPECT_EQ(state.controller.units, judge_.save().controller.units);
  EXPECT_EQ(state.reruns_ago, judge_.save().reruns_ago);
}

TEST_F(JudgeStateChange, ChangedPlacesStartTheErrorsAfresh) {
  Judge other(units_, options(), {.places = 3, .expected = {}, .can_rerun = true});
  const RestoreReport report = other.restore(judge_.save());
  EXPECT_TRUE(report.places_changed && !report.exact() && !report.error_beta_changed);
  EXPECT_EQ(other.save().errors, std::vector<ErrorState>(18));
}

TEST_F(JudgeStateChange, ErrorsGoByUnitName) {
  Judge other({{.name = "f"}, {.name = "new"}, {.name = "c"}}, options(), settings());
  const RestoreReport report = other.restore(judge_.save());
  EXPECT_EQ(report.new_units, (std::vector<std::string>{"new"}));
  const std::vector<ErrorState> before = judge_.save().errors;
  EXPECT_EQ(other.save().errors, (std::vector<ErrorState>{before[10], before[11], {}, {}, before[4], before[5]}));
}

TEST_F(JudgeStateChange, TheStateOfAPlainControllerHasFreshErrors) {
  Options changed = options();
  changed.error_beta = 0.5;
  Judge other(units_, changed, settings());
  const std::vector<double> norms(6, 1.0);
  other.hear({.step = 0, .norms = norms}, std::vector<double>(12, 0.5));
  EXPECT_TRUE(other.restore({.controller = judge_.save().controller, .errors = {}, .reruns_ago = {}}).exact())
      << "nothing is forgotten that was there";
  EXPECT_EQ(other.save().errors, std::vector<ErrorState>(12));
  EXPECT_EQ(other.reruns_left(), 20u);
  EXPECT_THROW(other.decide(), Error) << "what was being heard is withdrawn";
}

TEST_F(JudgeStateChange, AStateThatNoJudgeWroteIsRefusedAndNothingChanges) {
  const JudgeState good = judge_.save();
  const std::vector<std::function<void(JudgeState&)>> spoils{
      [](JudgeState& s) { s.places = 17; },
      [](JudgeState& s) { s.places = 1; },
      [](JudgeState& s) { s.places = 0; },
      [](JudgeState& s) { s.errors.pop_back(); },
      [](JudgeState& s) { s.errors[3].mean_sum = -1; },
      [](JudgeState& s) { s.errors[3].mean_sum = std::numeric_limits<double>::quiet_NaN(); },
      [](JudgeState& s) { s.errors[0].samples = 0; },
      [](JudgeState& s) { s.reruns_ago = {99}; },
      [](JudgeState& s) {
        s.reruns_ago = {3, 3};
      },
      [](JudgeState& s) {
        s.reruns_ago = {4, 3};
      },
      [](JudgeState& s) { s.controller.units[1].admitted_for = static_cast<RiskKind>(5); },
      [](JudgeState& s) { s.controller.options.error_beta = 1; },
      [](JudgeState& s) { s.controller.options.selector = static_cast<Selector>(5); },
  };
  for (std::size_t i = 0; i < spoils.size(); ++i) {
    JudgeState bad = good;
    spoils[i](bad);
    EXPECT_THROW(judge_.restore(bad), Error) << "spoil " << i;
    EXPECT_EQ(judge_.save(), good) << "spoil " << i;
  }
}

}  // namespace
}  // namespace gnmr
