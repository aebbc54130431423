// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/experiment_check.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "gnmr/core/error.h"
#include "gnmr/lab/experiment/fault_kinds.h"
#include "io/temporary_folder.h"

namespace gnmr::lab {
namespace {

using run::TrainSettings;

/// The message for settings with one change.
std::string refusal(const std::function<void(TrainSettings&)>& change) {
  TrainSettings settings;
  change(settings);
  return test::error_of<Error>([&] { check_settings(settings); });
}

TEST(ExperimentCheck, DefaultsAskForNothingAndAreValid) {
  EXPECT_NO_THROW(check_settings({}));
  EXPECT_FALSE(ExperimentSettings{}.is_wanted());
  EXPECT_EQ(ExperimentSettings{}.decider(), "");
}

TEST(ExperimentCheck, NamesTheSetting) {
  EXPECT_EQ(refusal([](TrainSettings& s) {
              s.experiment.faults = {"saturate", "melt"};
            }),
            "[settings] `faults`: expected " + expected_fault() + ", got \"melt\"");
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<std::pair<std::string, std::function<void(TrainSettings&)>>> cases{
      {"fault_every", [](TrainSettings& s) { s.experiment.fault_every = 0; }},
      {"fault_steps", [](TrainSettings& s) { s.experiment.fault_steps = 0; }},
      {"fault_from", [](TrainSettings& s) { s.experiment.fault_from = 0; }},
      {"fault_strength", [](TrainSettings& s) { s.experiment.fault_strength = 0.5; }},
      {"fault_strength", [&](TrainSettings& s) { s.experiment.fault_strength = nan; }},
      {"transplant_at", [](TrainSettings& s) { s.experiment.transplant_at = -1; }},
      {"transplant_channels", [](TrainSettings& s) { s.experiment.transplant_channels = 0; }},
      {"transplant_factor", [](TrainSettings& s) { s.experiment.transplant_factor = 0.5; }},
      {"steps", [](TrainSettings& s) { s.steps = 0; }},
  };
  for (const auto& [name, change] : cases) {
    EXPECT_TRUE(refusal(change).starts_with("[settings] `" + name + "`: ")) << name;
  }
}

TEST(ExperimentCheck, KnowsWhatMakesNoSenseTogether) {
  const auto with_rival = [](TrainSettings& settings) {
    settings.controller = "watch";
    settings.experiment.rival = "zclip:z=3";
  };
  TrainSettings right;
  with_rival(right);
  EXPECT_NO_THROW(check_settings(right));
  EXPECT_NE(refusal([&](TrainSettings& s) { with_rival(s), s.controller = "gnmr"; }).find("`rival`"),
            std::string::npos);
  EXPECT_NE(refusal([&](TrainSettings& s) { with_rival(s), s.experiment.oracle = true; }).find("`rival`"),
            std::string::npos);
  EXPECT_NE(refusal([&](TrainSettings& s) { with_rival(s), s.random_units = {"0.1"}; }).find("`rival`"),
            std::string::npos);
  EXPECT_NE(refusal([&](TrainSettings& s) { with_rival(s), s.options.lag = 1; }).find("`lag` 0"), std::string::npos);
  for (const bool oracle : {false, true}) {
    EXPECT_NE(refusal([&](TrainSettings& s) {
                s.granularity = "block";
                (oracle ? s.experiment.oracle : s.experiment.harm) = true;
              }).find("`granularity`"),
              std::string::npos);
  }
}

TEST(ExperimentCheck, HarmIsOfFaultsWhoseStepShowsIt) {
  for (const FaultKindSpec& spec : fault_kinds()) {
    TrainSettings settings;
    settings.experiment.faults = {std::string(spec.name)};
    EXPECT_NO_THROW(check_settings(settings)) << spec.name;
    settings.experiment.harm = true;
    if (has_measurable_harm(spec.kind)) {
      EXPECT_NO_THROW(check_settings(settings)) << spec.name;
    } else {
      const std::string found = test::error_of<Error>([&] { check_settings(settings); });
      EXPECT_NE(found.find("`harm`"), std::string::npos) << spec.name << ": " << found;
    }
  }
}

TEST(ExperimentCheck, ItNamesWhoDecides) {
  TrainSettings settings;
  EXPECT_EQ(run::controller_name(settings), "gnmr");
  settings.experiment.rival = "zclip:z=3";
  EXPECT_EQ(run::controller_name(settings), "zclip");
  settings.experiment.oracle = true;
  EXPECT_EQ(run::controller_name(settings), "oracle");
  settings.random_units = {"0.1"};
  EXPECT_EQ(run::controller_name(settings), "random");
}

}  // namespace
}  // namespace gnmr::lab
