// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/suite.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "gnmr/core/error.h"
#include "gnmr/lab/fault_suite.h"
#include "gnmr/lab/setting_texts.h"
#include "io/temporary_folder.h"
#include "lab/fake_run.h"

namespace gnmr::lab {
namespace {

using Texts = std::vector<std::string>;

/// The place of an arm of `gnmr lab stress`.
std::size_t place_of(const std::string& name) {
  const std::vector<Arm>& all = stress_arms();
  return static_cast<std::size_t>(
      std::find_if(all.begin(), all.end(), [&](const Arm& arm) { return arm.name == name; }) - all.begin());
}

class SuiteTest : public ::testing::Test {
 protected:
  SuiteRequest request() {
    return {.folder = folder_.file("suite"),
            .title = "a title",
            .notes = {"a note"},
            .seeds = {1, 0},
            .arms = stress_arms(),
            .texts = {"steps=40", "recipe=int4-act", "faults=saturate"}};
  }

  std::string refusal(const SuiteRequest& asked) {
    return test::error_of<Error>([&] { Suite::open(asked); });
  }

  test::TemporaryFolder folder_;
};

TEST_F(SuiteTest, CellsAreArmsTimesSeedsEachBehindWhatItNeeds) {
  const Suite suite = Suite::open(request());
  ASSERT_EQ(suite.cells().size(), 2 * stress_arms().size());
  EXPECT_EQ(suite.cells()[0].name, "high-seed0");
  EXPECT_EQ(suite.cells()[stress_arms().size()].seed, 1);
  for (std::size_t cell = 0; cell < suite.cells().size(); ++cell) {
    const PlannedCell& planned = suite.cells()[cell];
    const std::string& needs = suite.arms()[planned.arm].arm.needs;
    EXPECT_EQ(planned.needs.has_value(), !needs.empty());
    if (!planned.needs) continue;
    EXPECT_LT(*planned.needs, cell);
    EXPECT_EQ(suite.cells()[*planned.needs].seed, planned.seed);
    EXPECT_EQ(suite.arms()[suite.cells()[*planned.needs].arm].arm.name, needs);
  }
}

TEST_F(SuiteTest, ArmsHaveTheSettingsOfTheirTexts) {
  const Suite suite = Suite::open(request());
  const auto settings = [&](std::size_t arm) { return suite.arms()[arm].settings; };
  EXPECT_EQ(settings(0).recipe, "none");
  EXPECT_TRUE(settings(0).experiment.faults.empty());
  EXPECT_EQ(settings(1).recipe, "int4-act");
  EXPECT_EQ(settings(1).controller, "watch");
  EXPECT_EQ(settings(1).experiment.faults, Texts{"saturate"});
  EXPECT_EQ(settings(2).controller, "gnmr");
  EXPECT_EQ(settings(3).options, Options::preset("paper"));
  EXPECT_EQ(settings(3).threads, 1);
}

TEST_F(SuiteTest, TheFileHoldsWhatIsNeededToRunEveryCellByHand) {
  Suite::open(request());
  const auto file = nlohmann::json::parse(test::content_of(folder_.file("suite/suite.json")));
  EXPECT_EQ(file["version"], 1);
  EXPECT_EQ(file["title"], "a title");
  EXPECT_EQ(file["notes"][0], "a note");
  EXPECT_EQ(file["seeds"], (std::vector<int>{0, 1}));
  EXPECT_EQ(file["arms"][3]["name"], "paper");
  EXPECT_EQ(file["arms"][3]["settings"]["options"]["fall_tau"], 0);
  EXPECT_EQ(file["arms"][3]["command"],
            "gnmr train --steps=40 --threads=1 --recipe=int4-act --refresh=0 --faults=saturate '--label=GNMR, paper' "
            "--preset=paper");
}

TEST_F(SuiteTest, ASecondSuiteInTheSameFolderIsRefusedUnlessResumed) {
  Suite::open(request());
  EXPECT_NE(refusal(request()).find("--resume"), std::string::npos);
  SuiteRequest again = request();
  again.resume = true;
  EXPECT_EQ(Suite::open(again).cells().size(), 2 * stress_arms().size());
}

TEST_F(SuiteTest, AResumedSuiteKeepsItsSettings) {
  Suite::open(request());
  SuiteRequest other = request();
  other.resume = true;
  other.texts.push_back("lr=0.5");
  other.texts.push_back("tau=7");
  const std::string why = refusal(other);
  EXPECT_NE(why.find("(lr, tau)"), std::string::npos) << why;
}

TEST_F(SuiteTest, AResumedSuiteCanHaveMoreSeedsAndArmsAndKeepsItsThreads) {
  SuiteRequest first = request();
  first.arms = choose_arms(Texts{"high", "low"});
  first.seeds = {5};
  first.threads = 3;
  Suite::open(first);
  SuiteRequest more = request();
  more.arms = choose_arms(Texts{"low", "gnmr"});
  more.seeds = {6};
  more.resume = true;
  const Suite suite = Suite::open(more);
  EXPECT_EQ(suite.cells().size(), 6U);
  EXPECT_EQ(suite.seeds(), (std::vector<std::int64_t>{5, 6}));
  for (const SuiteArm& arm : suite.arms()) EXPECT_EQ(arm.settings.threads, 3) << arm.arm.name;
}

TEST_F(SuiteTest, RandomUnitsGetTheShareOfTheDetectorAndOneUnitWhereItUsedNone) {
  const Suite suite = Suite::open(request());
  PlannedCell cell{.name = "random-seed1", .arm = 4, .seed = 1};
  CellResult gnmr{.share_mean = 0.3, .units = 4};
  std::string note;
  run::TrainSettings settings = suite.settings_of(cell, &gnmr, note);
  EXPECT_EQ(settings.random_units, Texts{"0.3"});
  EXPECT_EQ(settings.seed, 1);
  EXPECT_EQ(settings.out, folder_.file("suite/runs/random-seed1"));
  EXPECT_EQ(note, "");
  gnmr.share_mean = 0.01;
  EXPECT_EQ(suite.settings_of(cell, &gnmr, note).random_units, Texts{"0.01"});
  EXPECT_EQ(note, "");
  gnmr.share_mean = 0;
  EXPECT_EQ(suite.settings_of(cell, &gnmr, note).random_units, Texts{"0.25"});
  EXPECT_NE(note.find("used no unit"), std::string::npos) << note;
  EXPECT_THROW(suite.settings_of(cell, nullptr, note), Error);
}

TEST_F(SuiteTest, RandomUnitsCanHaveAllOfTheHighPrecisionOfTheDetector) {
  const Suite suite = Suite::open(request());
  const PlannedCell cell{.name = "random-total-seed1", .arm = place_of("random-total"), .seed = 1};
  CellResult gnmr{.share_mean = 0.0625, .high = {.total = 0.25}, .units = 4};
  std::string note;
  EXPECT_EQ(suite.settings_of(cell, &gnmr, note).random_units, Texts{"0.25"});
  gnmr.high.total = 1.5;
  EXPECT_EQ(suite.settings_of(cell, &gnmr, note).random_units, Texts{"0.99"});
  EXPECT_NE(note, "");
  gnmr.high.total.reset();
  EXPECT_THROW(suite.settings_of(cell, &gnmr, note), Error) << "a result of before";
}

TEST_F(SuiteTest, EverythingIsHighInTheLastSteps) {
  const Suite suite = Suite::open(request());
  std::string note;
  const PlannedCell cell{.name = "late-high-seed0", .arm = place_of("late-high")};
  // The last 15% of 40 steps are six.
  EXPECT_EQ(suite.settings_of(cell, nullptr, note).set, Texts{"*=high@35:"});
}

TEST_F(SuiteTest, EndsAreTheFirstAndTheLastBlock) {
  const Suite suite = Suite::open(request());
  test::FakeRun low;
  low.settings.out = folder_.file("suite/runs/low-seed0");
  test::write_fake_run(low);
  const CellResult result{.run = "runs/low-seed0"};
  std::string note;
  const run::TrainSettings settings =
      suite.settings_of({.name = "ends-high-seed0", .arm = place_of("ends-high")}, &result, note);
  EXPECT_EQ(settings.always_high, (Texts{"layers.0.*", "layers.1.*"}));
}

TEST_F(SuiteTest, ARecipeOfTheRegimeIsWrittenAndUsed) {
  SuiteRequest asked = request();
  asked.recipe_json = find_regime("fp8-stale-32").recipe_json;
  const Suite suite = Suite::open(asked);
  EXPECT_EQ(suite.arms()[1].settings.recipe, folder_.file("suite/recipe.json"));
  const auto recipe = nlohmann::json::parse(test::content_of(folder_.file("suite/recipe.json")));
  EXPECT_EQ(recipe["input"]["interval"], 32);
  EXPECT_EQ(recipe["output_gradient"]["format"], "e5m2");
}

TEST_F(SuiteTest, FrozenOptionsAreForAllArmsButAPresetTakesOnlyItsBudget) {
  SuiteRequest asked = request();
  asked.arms = choose_fault_arms(Texts{"none", "paper", "trial", "fixed"});
  asked.option_texts = {"max_o=3", "tau=7", "max_o=2", "noise_factor=5"};
  const Suite suite = Suite::open(asked);
  const auto options = [&](std::size_t arm) { return suite.arms()[arm].settings.options; };
  Options paper = Options::preset("paper");
  paper.max_o = 2;
  EXPECT_EQ(options(1), paper);
  EXPECT_EQ(options(2).selector, Selector::trial);
  EXPECT_EQ(options(2).tau, 7);
  EXPECT_EQ(options(2).max_o, 2);
  EXPECT_EQ(options(2).noise_factor, 5);
  EXPECT_EQ(options(3).noise_factor, 0);
}

TEST_F(SuiteTest, InAFaultSuiteEachSeedHasFaultsOfItsOwn) {
  SuiteRequest asked = request();
  asked.fault = "saturate";
  asked.arms = choose_fault_arms(Texts{"none", "trial", "random", "ends-high"});
  const Suite suite = Suite::open(asked);
  std::string note;
  EXPECT_EQ(suite.settings_of({.name = "trial-seed1", .arm = 1, .seed = 1}, nullptr, note).experiment.fault_seed, 2);
  const Suite loaded = Suite::load(folder_.file("suite"));
  EXPECT_EQ(loaded.fault(), "saturate");
  ASSERT_EQ(loaded.cells().size(), suite.cells().size());
  EXPECT_EQ(loaded.arms()[2].arm.needs, "trial");
  EXPECT_EQ(loaded.arms()[3].arm.needs, "none");
  EXPECT_EQ(loaded.arms()[1].settings, suite.arms()[1].settings);
}

TEST_F(SuiteTest, FilesOfBeforeDoNotSayWhatAnArmNeeds) {
  Suite::open(request());
  auto file = nlohmann::json::parse(test::content_of(folder_.file("suite/suite.json")));
  for (auto& arm : file["arms"]) arm.erase("needs");
  test::put_file(folder_.file("suite/suite.json"), file.dump());
  const Suite suite = Suite::load(folder_.file("suite"));
  EXPECT_EQ(suite.arms()[4].arm.needs, "gnmr");
  EXPECT_EQ(suite.arms()[place_of("ends-high")].arm.needs, "low");
  EXPECT_EQ(suite.fault(), "");
}

TEST_F(SuiteTest, ADamagedFileIsNamed) {
  Suite::open(request());
  test::put_file(folder_.file("suite/suite.json"), "{\"version\": 1}");
  SuiteRequest again = request();
  again.resume = true;
  EXPECT_NE(refusal(again).find("suite.json"), std::string::npos);
}

TEST(Regimes, WhatIsNotNaturalIsCalledSo) {
  int semi_natural = 0;
  for (const Regime& regime : regimes()) {
    const ExperimentSettings experiment = settings_from_texts(regime.texts).experiment;
    const bool is_called_so = regime.about.starts_with("Semi-natural");
    semi_natural += is_called_so ? 1 : 0;
    EXPECT_EQ(is_called_so || regime.about.find("INJECTED") != std::string::npos, experiment.is_wanted())
        << regime.name;
  }
  EXPECT_EQ(semi_natural, 4);
}

TEST(Regimes, NamesAreKnownAndEveryCombinationIsValid) {
  for (const Regime& regime : regimes()) {
    EXPECT_EQ(find_regime(regime.name).name, regime.name);
    for (const Arm& arm : stress_arms()) {
      Texts texts = stress_texts();
      texts.insert(texts.end(), regime.texts.begin(), regime.texts.end());
      texts.insert(texts.end(), arm.texts.begin(), arm.texts.end());
      EXPECT_NO_THROW(settings_from_texts(texts)) << regime.name << " " << arm.name;
    }
  }
  EXPECT_NE(test::error_of<Error>([] { find_regime("int5"); }).find("int4-act"), std::string::npos);
  EXPECT_THROW(choose_arms(Texts{"hihg"}), Error);
  EXPECT_EQ(choose_arms(Texts{"all"}).size(), stress_arms().size());
  const std::vector<Arm> swept = choose_arms(Texts{"paper:tau=1.5,lock_steps=20", "low"});
  ASSERT_EQ(swept.size(), 2U);
  EXPECT_EQ(swept[0].name, "low");
  const run::TrainSettings paper = settings_from_texts(swept[1].texts);
  EXPECT_EQ(paper.options.tau, 1.5);
  EXPECT_EQ(paper.options.lock_steps, 20);
  EXPECT_EQ(paper.options.noise_factor, Options::preset("paper").noise_factor) << "the rest of the preset";
  EXPECT_NE(test::error_of<Error>([] { choose_arms(Texts{"high", "random"}); }).find("gnmr"), std::string::npos);
}

}  // namespace
}  // namespace gnmr::lab
