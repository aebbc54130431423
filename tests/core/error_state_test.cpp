// SPDX-License-Identifier: Apache-2.0
// Saving and restoring errors and reruns: changed options, sites and units; bad states. That a controller goes on bit
// for bit is in controller_trials_test.cpp.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "core/run_step.h"
#include "gnmr/core/error.h"

namespace gnmr {
namespace {

class ErrorStateChange : public ::testing::Test {
 protected:
  ErrorStateChange() : controller_(units_, options(), backend()) {
    const std::vector<double> norms(6, 1.0);
    for (int step = 0; step < 40; ++step) {
      std::vector<double> errors;
      for (int i = 0; i < 12; ++i) errors.push_back(0.01 * (i + 1));
      if (step > 30) errors[3] = 0.9;  // unit b, site 1
      const StepReport report{.step = step, .norms = norms, .errors = errors};
      if (testing::wants_trial(testing::run_step(controller_, report))) testing::run_step(controller_, report);
    }
    EXPECT_GT(controller_.steps_left(1), 0u);
  }

  static Options options() {
    Options options;
    options.max_o = 3;
    return options;
  }
  static Backend backend() { return {.can_rerun = true, .sites = 2}; }

  const std::vector<Unit> units_{{.name = "a"}, {.name = "b"}, {.name = "c"},
                                 {.name = "d"}, {.name = "e"}, {.name = "f"}};
  Controller controller_;
};

TEST_F(ErrorStateChange, WhatIsSavedIsWhatIsRestored) {
  Controller other(units_, options(), backend());
  const ControllerState state = controller_.save();
  EXPECT_EQ(state.sites, 2u);
  EXPECT_EQ(state.errors.size(), 12u);
  EXPECT_EQ(state.reruns_ago, (std::vector<std::uint32_t>{8}));  // the trial of step 31
  EXPECT_EQ(state.units[1].admitted_for, RiskKind::error);
  EXPECT_TRUE(other.restore(state).exact());
  EXPECT_EQ(other.save(), state);
  EXPECT_EQ(other.reruns_left(), 19u);
}

TEST_F(ErrorStateChange, ADoubtIsTakenOverWithTheSelectorTrialOnly) {
  ControllerState state = controller_.save();
  EXPECT_EQ(state.doubt, Doubt{}) << "a numeric verdict leaves none";
  state.doubt = {.value = 8, .decisions_left = 100};
  Controller other(units_, options(), backend());
  other.restore(state);
  EXPECT_EQ(other.save().doubt, state.doubt);
  Options by_evidence = options();
  by_evidence.selector = Selector::evidence;
  Controller without(units_, by_evidence, backend());
  without.restore(state);
  EXPECT_EQ(without.save().doubt, Doubt{});
}

TEST_F(ErrorStateChange, AChangedErrorBetaStartsTheErrorsAfreshAndNothingElse) {
  Options changed = options();
  changed.error_beta = 0.5;
  Controller other(units_, changed, backend());
  const RestoreReport report = other.restore(controller_.save());
  EXPECT_TRUE(report.error_beta_changed && !report.exact() && !report.sites_changed);
  const ControllerState state = other.save();
  EXPECT_EQ(state.errors, std::vector<ErrorState>(12));
  EXPECT_EQ(state.units, controller_.save().units);
  EXPECT_EQ(state.reruns_ago, controller_.save().reruns_ago);
}

TEST_F(ErrorStateChange, ChangedSitesStartTheErrorsAfresh) {
  Controller other(units_, options(), {.can_rerun = true, .sites = 3});
  const RestoreReport report = other.restore(controller_.save());
  EXPECT_TRUE(report.sites_changed && !report.exact() && !report.error_beta_changed);
  EXPECT_EQ(other.save().errors, std::vector<ErrorState>(18));
}

TEST_F(ErrorStateChange, ErrorsGoByUnitName) {
  Controller other({{.name = "f"}, {.name = "new"}, {.name = "c"}}, options(), backend());
  const RestoreReport report = other.restore(controller_.save());
  EXPECT_EQ(report.new_units, (std::vector<std::string>{"new"}));
  const std::vector<ErrorState> before = controller_.save().errors;
  EXPECT_EQ(other.save().errors, (std::vector<ErrorState>{before[10], before[11], {}, {}, before[4], before[5]}));
}

TEST_F(ErrorStateChange, TheStateOfAControllerByNormsHasFreshErrors) {
  Options changed = options();
  changed.error_beta = 0.5;
  Controller other(units_, changed, backend());
  const std::vector<double> norms(6, 1.0);
  testing::run_step(other, {.step = 0, .norms = norms, .errors = std::vector<double>(12, 0.5)});
  other.begin(1);
  ControllerState by_norms = controller_.save();
  by_norms.sites = 0;
  by_norms.errors.clear();
  by_norms.levels.clear();
  by_norms.reruns_ago.clear();
  EXPECT_TRUE(other.restore(by_norms).exact()) << "nothing is forgotten that was there";
  EXPECT_EQ(other.save().errors, std::vector<ErrorState>(12));
  EXPECT_EQ(other.reruns_left(), 20u);
  EXPECT_THROW(other.report({.step = 1, .norms = norms}), Error) << "a step that has begun is not part of a state";
}

TEST_F(ErrorStateChange, AStateThatNoControllerWroteIsRefusedAndNothingChanges) {
  const ControllerState good = controller_.save();
  const std::vector<std::function<void(ControllerState&)>> spoils{
      [](ControllerState& s) { s.sites = 17; },
      [](ControllerState& s) { s.sites = 1; },
      [](ControllerState& s) { s.sites = 0; },
      [](ControllerState& s) { s.errors.pop_back(); },
      [](ControllerState& s) { s.errors[3].mean_sum = -1; },
      [](ControllerState& s) { s.errors[3].mean_sum = std::numeric_limits<double>::quiet_NaN(); },
      [](ControllerState& s) { s.errors[0].samples = 0; },
      [](ControllerState& s) { s.reruns_ago = {99}; },
      [](ControllerState& s) {
        s.reruns_ago = {3, 3};
      },
      [](ControllerState& s) {
        s.reruns_ago = {4, 3};
      },
      [](ControllerState& s) { s.units[1].admitted_for = static_cast<RiskKind>(5); },
      [](ControllerState& s) { s.doubt = {.value = 1, .decisions_left = 3}; },
      [](ControllerState& s) { s.doubt = {.value = 0, .decisions_left = 0}; },
      [](ControllerState& s) { s.doubt = {.value = 3, .decisions_left = 3}; },
      [](ControllerState& s) { s.doubt = {.value = 16, .decisions_left = 3}; },
      [](ControllerState& s) { s.doubt = {.value = 8, .decisions_left = 0}; },
      [](ControllerState& s) { s.doubt = {.value = 8, .decisions_left = 101}; },
      [](ControllerState& s) { s.options.error_beta = 1; },
      [](ControllerState& s) { s.options.selector = static_cast<Selector>(5); },
  };
  for (std::size_t i = 0; i < spoils.size(); ++i) {
    ControllerState bad = good;
    spoils[i](bad);
    EXPECT_THROW(controller_.restore(bad), Error) << "spoil " << i;
    EXPECT_EQ(controller_.save(), good) << "spoil " << i;
  }
}

}  // namespace
}  // namespace gnmr
