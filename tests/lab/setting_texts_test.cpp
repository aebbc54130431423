// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/setting_texts.h"

#include <gtest/gtest.h>

#include "gnmr/core/error.h"
#include "io/temporary_folder.h"

namespace gnmr::lab {
namespace {

using Texts = std::vector<std::string>;

TEST(SettingTexts, NamesMayHaveDashesAndAFlagsLook) {
  EXPECT_EQ(parse_setting_text("max-o=3").name, "max_o");
  EXPECT_EQ(parse_setting_text("--eval-every=10").name, "eval_every");
  EXPECT_EQ(parse_setting_text("set=a=high").value, "a=high");
  EXPECT_EQ(parse_setting_text("faults=").value, "");
  EXPECT_NE(test::error_of<Error>([] { parse_setting_text("lr"); }).find("NAME=VALUE"), std::string::npos);
  EXPECT_THROW(parse_setting_text("=3"), Error);
}

TEST(SettingTexts, EveryTypeIsRead) {
  const run::TrainSettings settings = settings_from_texts(
      Texts{"lr=0.01", "steps=7", "recipe=nvfp4", "evidence=true", "faults=saturate overflow", "tau=3", "max-o=2"});
  EXPECT_EQ(settings.lr, 0.01);
  EXPECT_EQ(settings.steps, 7);
  EXPECT_EQ(settings.recipe, "nvfp4");
  EXPECT_TRUE(settings.evidence);
  EXPECT_EQ(settings.experiment.faults, (Texts{"saturate", "overflow"}));
  EXPECT_EQ(settings.options.tau, 3);
  EXPECT_EQ(settings.options.max_o, 2);
}

TEST(SettingTexts, ALaterTextWinsAndAPresetComesBeforeAllOptions) {
  const run::TrainSettings settings =
      settings_from_texts(Texts{"lr=1", "lr=2", "tau=3", "preset=paper", "faults=saturate", "faults="});
  EXPECT_EQ(settings.lr, 2);
  EXPECT_EQ(settings.options.tau, 3);
  EXPECT_EQ(settings.options.fall_tau, 0);
  EXPECT_TRUE(settings.experiment.faults.empty());
}

TEST(SettingTexts, WhatIsWrongIsNamed) {
  const auto error = [](const std::string& text) {
    return test::error_of<Error>([&] { settings_from_texts(Texts{text}); });
  };
  EXPECT_NE(error("leraning_rate=1").find("leraning_rate"), std::string::npos);
  EXPECT_NE(error("steps=many").find("steps"), std::string::npos);
  EXPECT_NE(error("steps=0").find("steps"), std::string::npos);
  EXPECT_NE(error("evidence=1").find("evidence"), std::string::npos);
  EXPECT_NE(error("tau=0.5").find("tau"), std::string::npos);
  EXPECT_NE(error("preset=best").find("best"), std::string::npos);
}

TEST(SettingTexts, FlagsAreThoseThatDiffer) {
  EXPECT_TRUE(train_arguments(run::TrainSettings{}).empty());
  const run::TrainSettings settings = settings_from_texts(
      Texts{"lr=0.01", "evidence=true", "faults=saturate overflow", "preset=paper", "max_o=3", "out=a b"});
  EXPECT_EQ(train_arguments(settings), (Texts{"--lr=0.01", "--evidence", "--faults=saturate", "--faults=overflow",
                                              "--out=a b", "--preset=paper", "--max-o=3"}));
}

// `gnmr train` refuses options without effect where a flag names them. Frozen options meet arms of all kinds.
TEST(SettingTexts, OptionsWithoutEffectAreNoFlags) {
  const Texts frozen{"error_factor=2", "error_ceiling=3", "noise_beta=0.9", "tau=3", "max_trials=5"};
  const auto flags = [&](const Texts& arm) {
    Texts texts = frozen;
    texts.insert(texts.end(), arm.begin(), arm.end());
    return train_arguments(settings_from_texts(texts));
  };
  EXPECT_EQ(flags({}),
            (Texts{"--tau=3", "--noise-beta=0.9", "--max-trials=5", "--error-factor=2", "--error-ceiling=3"}));
  EXPECT_EQ(flags({"selector=norms"}), (Texts{"--tau=3", "--noise-beta=0.9", "--selector=norms"}));
  EXPECT_EQ(flags({"selector=norms", "guard=replay"}),
            (Texts{"--tau=3", "--noise-beta=0.9", "--selector=norms", "--guard=replay", "--max-trials=5"}));
  EXPECT_EQ(flags({"recipe=none", "controller=watch", "selector=trial", "noise_factor=0"}),
            (Texts{"--recipe=none", "--controller=watch", "--tau=3", "--noise-factor=0"}));
  EXPECT_EQ(flags({"controller=none", "preset=paper"}), (Texts{"--controller=none"}));
}

TEST(SettingTexts, OptionsOfAFileAreThoseThatItNamesOrItsPresetChanges) {
  const test::TemporaryFolder folder;
  test::put_file(folder.file("options.json"), R"({"max_o": 0.01, "tau": 3, "selector": "trial"})");
  EXPECT_EQ(option_texts(folder.file("options.json")), (Texts{"tau=3", "max_o=0.01", "selector=trial"}));
  test::put_file(folder.file("paper.json"), R"({"preset": "paper", "beta": 0.9})");
  const Texts texts = option_texts(folder.file("paper.json"));
  EXPECT_EQ(texts.front(), "beta=0.9");
  EXPECT_EQ(settings_from_texts(texts).options, Options::preset("paper"));
  test::put_file(folder.file("bad.json"), R"({"tau": 0})");
  EXPECT_NE(test::error_of<Error>([&] { option_texts(folder.file("bad.json")); }).find("bad.json"), std::string::npos);
}

TEST(SettingTexts, WhatDiffersFromTheDefaultsCanBeTold) {
  EXPECT_TRUE(changed_settings(run::TrainSettings{}).empty());
  Texts told;
  for (const SettingText& text : changed_settings(settings_from_texts(
           Texts{"lr=0.01", "harm=true", "faults=saturate overflow", "selector=norms", "tau=3", "max_o=0.01"}))) {
    told.push_back(text.name + "=" + text.value);
  }
  EXPECT_EQ(told, (Texts{"lr=0.01", "faults=saturate overflow", "harm=true", "tau=3", "selector=norms"}));
}

TEST(SettingTexts, AShellReadsTheLineBack) {
  EXPECT_EQ(shell_line(Texts{"gnmr", "--lr=0.01", "a b", "it's", "*.q", ""}),
            "gnmr --lr=0.01 'a b' 'it'\\''s' '*.q' ''");
}

TEST(SettingTexts, DifferencesAreNamed) {
  run::TrainSettings one;
  run::TrainSettings other;
  EXPECT_TRUE(changed_settings(one, other).empty());
  other.lr = 1;
  other.options.tau = 5;
  EXPECT_EQ(changed_settings(one, other), (Texts{"lr", "tau"}));
}

}  // namespace
}  // namespace gnmr::lab
