// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/fault_suite.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "gnmr/core/error.h"
#include "gnmr/lab/setting_texts.h"
#include "io/temporary_folder.h"

namespace gnmr::lab {
namespace {

using Texts = std::vector<std::string>;

Texts names_of(const std::vector<FaultSubject>& subjects) {
  Texts names;
  for (const FaultSubject& subject : subjects) names.push_back(subject.name);
  return names;
}

run::TrainSettings settings_of(const FaultSubject& subject, const Arm& arm) {
  Texts texts = fault_option_texts();
  for (const Texts& part : {fault_texts(), subject.texts, arm.texts})
    texts.insert(texts.end(), part.begin(), part.end());
  return settings_from_texts(texts);
}

const Arm& arm_named(const std::string& name) {
  const std::vector<Arm>& all = fault_arms();
  return *std::find_if(all.begin(), all.end(), [&](const Arm& arm) { return arm.name == name; });
}

TEST(FaultSuite, SubjectsAreKindsAndGroupsOfThem) {
  EXPECT_EQ(names_of(fault_subjects(Texts{"none", "required", "overflow", "flush:once"})),
            (Texts{"none", "saturate", "overflow", "gradient-overflow", "wrong-rows", "flush:once"}));
  EXPECT_EQ(fault_subjects(Texts{"all"}).size(), fault_kinds().size());
  EXPECT_EQ(fault_subject("flush:once").folder, "flush-once");
  EXPECT_EQ(subject_title(fault_subject("wrong-rows")), "wrong-rows (after-cast)");
  EXPECT_EQ(subject_title(fault_subject("none")), "none");
  EXPECT_NE(test::error_of<Error>([] { fault_subject("satruate"); }).find("saturate"), std::string::npos);
  EXPECT_THROW(fault_subject("bad-batch:once"), Error);
}

TEST(FaultSuite, ASweepNamesStrengthAndLayers) {
  const Texts swept = swept_faults(Texts{"saturate", "none", "overflow"}, Texts{"4", "16"}, Texts{"1", "all"});
  EXPECT_EQ(swept.size(), 9u);
  EXPECT_EQ(swept[0], "saturate,strength=4,layers=1");
  EXPECT_EQ(swept[4], "none");
  EXPECT_EQ(swept_faults(Texts{"saturate"}, Texts{}, Texts{}), Texts{"saturate"});
  const FaultSubject all = fault_subject("overflow:once,strength=16,layers=all");
  EXPECT_EQ(all.folder, "overflow-once-strength-16-layers-all");
  const run::TrainSettings settings = settings_of(all, arm_named("trial"));
  EXPECT_EQ(settings.experiment.faults, Texts{"overflow:once"});
  EXPECT_EQ(settings.experiment.fault_strength, 16);
  EXPECT_EQ(settings.experiment.fault_layers, kAllLayers);
  EXPECT_FALSE(settings.experiment.harm);
  EXPECT_TRUE(settings_of(fault_subject("overflow,layers=1"), arm_named("trial")).experiment.harm);
  for (const char* wrong :
       {"saturate,strength=0", "saturate,layers=0", "saturate,layers=x", "saturate,often=2", "saturate,"}) {
    EXPECT_THROW(fault_subject(wrong), Error) << wrong;
  }
}

TEST(FaultSuite, EveryArmIsValidUnderEveryFault) {
  std::set<std::string> names;
  for (const Arm& arm : fault_arms()) {
    EXPECT_TRUE(names.insert(arm.name).second) << arm.name;
    EXPECT_TRUE(arm.needs.empty() || names.contains(arm.needs)) << arm.name;
    for (const FaultSubject& subject : fault_subjects(Texts{"all", "none", "saturate:once"})) {
      EXPECT_NO_THROW(settings_of(subject, arm)) << subject.name << " " << arm.name;
    }
  }
  EXPECT_EQ(choose_fault_arms(Texts{"all"}).size(), fault_arms().size());
  EXPECT_EQ(choose_fault_arms(Texts{"required", "patrol"}).size(), required_fault_arms().size() + 1);
  EXPECT_EQ(choose_fault_arms(Texts{"rivals"}).size(), 4u);
  EXPECT_NE(test::error_of<Error>([] { choose_fault_arms(Texts{"none", "random"}); }).find("trial"), std::string::npos);
}

TEST(FaultSuite, AnArmCanHaveOtherSettingsForASweep) {
  const std::vector<Arm> arms =
      choose_fault_arms(Texts{"zclip:z=3,alpha=0.9", "trial:error_factor=3,patrol=0.25", "trial", "random"});
  ASSERT_EQ(arms.size(), 4u);
  EXPECT_EQ(arms[0].name, "trial");
  EXPECT_EQ(arms[1].name, "random");
  const FaultSubject saturate = fault_subject("saturate");
  const run::TrainSettings zclip = settings_of(saturate, arms[2]);
  EXPECT_EQ(arms[2].name, "zclip:z=3,alpha=0.9");
  EXPECT_EQ(zclip.experiment.rival, "zclip:z=3,alpha=0.9");
  EXPECT_EQ(zclip.controller, "watch");
  const run::TrainSettings trial = settings_of(saturate, arms[3]);
  EXPECT_EQ(trial.options.error_factor, 3);
  EXPECT_EQ(trial.patrol, 0.25);
  EXPECT_EQ(trial.options.selector, Selector::trial);
  EXPECT_THROW(choose_fault_arms(Texts{"trail:patrol=1"}), Error);
  EXPECT_THROW(choose_fault_arms(Texts{"trial:patrl=1"}), Error);
  EXPECT_THROW(choose_fault_arms(Texts{"trial:"}), Error);
}

TEST(FaultSuite, ArmsChangeWhatDefinesThem) {
  const FaultSubject saturate = fault_subject("saturate");
  const run::TrainSettings trial = settings_of(saturate, arm_named("trial"));
  EXPECT_EQ(trial.steps, 300);
  EXPECT_EQ(trial.experiment.faults, Texts{"saturate"});
  EXPECT_EQ(trial.options.max_o, 3);
  EXPECT_TRUE(trial.experiment.harm);
  EXPECT_EQ(trial.patrol, run::TrainSettings{}.patrol);
  const auto changed = [&](const std::string& arm) {
    return changed_settings(trial, settings_of(saturate, arm_named(arm)));
  };
  EXPECT_EQ(changed("high"), (Texts{"recipe", "controller", "faults", "harm", "selector"}));
  EXPECT_EQ(changed("none"), (Texts{"controller", "selector", "coarse_error"}));
  EXPECT_EQ(changed("norms"), (Texts{"selector", "coarse_error"}));
  EXPECT_EQ(changed("evidence"), (Texts{"evidence_from", "selector", "guard"}));
  EXPECT_EQ(changed("oracle"), (Texts{"oracle", "selector", "coarse_error"}));
  EXPECT_EQ(changed("zclip"), (Texts{"controller", "harm", "rival", "selector", "coarse_error"}));
  EXPECT_EQ(changed("norms-clip"), (Texts{"selector", "guard", "coarse_error"}));
  EXPECT_EQ(changed("trial-no-patrol"), Texts{"patrol"});
  EXPECT_EQ(changed("gnmr-only"), (Texts{"patrol", "delta_tau", "fall_tau"}));
  EXPECT_EQ(changed("no-budget"), Texts{"max_o"});
  EXPECT_EQ(changed("oracle-unlimited"), (Texts{"oracle", "max_o", "selector", "coarse_error"}));
  EXPECT_EQ(changed("no-faults"), (Texts{"controller", "faults", "harm", "selector", "coarse_error"}));
  EXPECT_EQ(changed("evidence-fixed"),
            (Texts{"refresh", "evidence_from", "selector", "guard", "error_factor", "coarse_error"}));
  EXPECT_EQ(changed("patrol-replay"), (Texts{"refresh", "selector", "guard", "coarse_error"}));
  EXPECT_EQ(changed("standing"), (Texts{"refresh", "tau", "delta_tau", "fall_tau", "selector"}));
  EXPECT_EQ(changed("down-o-high"), (Texts{"always_high", "controller", "selector", "coarse_error"}));
}

TEST(FaultSuite, BothSuitesHaveTheArmsOfRulesOraclesAndParts) {
  const Texts names{"no-faults", "oracle",    "oracle-unlimited", "evidence-fixed", "patrol-replay", "standing",
                    "refresh",   "down-high", "down-o-high",      "ends-high",      "late-high",     "random-total"};
  for (const std::string& name : names) {
    Texts wanted{name, "high", "low", "gnmr"};
    const std::vector<Arm> stress = choose_arms(wanted);
    const auto found = std::find_if(stress.begin(), stress.end(), [&](const Arm& arm) { return arm.name == name; });
    ASSERT_NE(found, stress.end());
    EXPECT_EQ(found->texts, arm_named(name).texts) << name;
  }
  EXPECT_EQ(settings_of(fault_subject("saturate"), arm_named("oracle-unlimited")).options.max_o, 1000000);
}

TEST(FaultSuite, ABugInTheAmaxHistoryNeedsDelayedScalingAndHasNoHarm) {
  for (const char* const bug : {"missed-amax", "wrong-amax,strength=4,layers=1"}) {
    const run::TrainSettings settings = settings_of(fault_subject(bug), arm_named("trial"));
    EXPECT_EQ(settings.recipe, "fp8-delayed") << bug;
    EXPECT_FALSE(settings.experiment.harm) << bug;
    EXPECT_EQ(settings_of(fault_subject(bug), arm_named("high")).recipe, "none") << bug;
  }
  EXPECT_TRUE(settings_of(fault_subject("cached-weight"), arm_named("trial")).experiment.harm);
}

TEST(FaultSuite, AHealthyRunHasNoFaultsAndNoHarm) {
  const run::TrainSettings settings = settings_of(fault_subject("none"), arm_named("oracle"));
  EXPECT_TRUE(settings.experiment.faults.empty());
  EXPECT_FALSE(settings.experiment.harm);
}

}  // namespace
}  // namespace gnmr::lab
