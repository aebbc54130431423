// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/options_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "gnmr/core/error.h"
#include "io/temporary_folder.h"

namespace gnmr::io {
namespace {

using test::error_of;

std::string options_error(const std::string& json_text) {
  return error_of<Error>([&] { read_options(json_text); });
}

TEST(OptionsJson, EmptyObjectIsTheDefault) {
  EXPECT_EQ(read_options("{}"), Options{});
  EXPECT_EQ(read_options(" {\n} \n"), Options{});
}

TEST(OptionsJson, PresetSetsAllAndSingleOptionsOverrideItInAnyOrder) {
  Options expected = Options::preset("paper");
  expected.tau = 3;
  EXPECT_EQ(read_options(R"({"preset": "paper", "tau": 3})"), expected);
  EXPECT_EQ(read_options(R"({"tau": 3, "preset": "paper"})"), expected);
  EXPECT_EQ(read_options(R"({"preset": "default"})"), Options{});
  EXPECT_NE(expected, Options{});
}

TEST(OptionsJson, AGivenPresetTakesThePlaceOfTheObjects) {
  Options expected = Options::preset("paper");
  expected.tau = 3;
  EXPECT_EQ(read_options(R"({"preset": "default", "tau": 3})", "paper"), expected);
  EXPECT_EQ(read_options(R"({"tau": 3})", "paper"), expected);
  EXPECT_THROW(read_options("{}", "papers"), Error);
}

TEST(OptionsJson, TheValueDecidesNotItsSpelling) {
  EXPECT_EQ(read_options(R"({"window": 7.0})").window, 7);
  EXPECT_EQ(read_options(R"({"window": 7e0})").window, 7);
  EXPECT_EQ(read_options(R"({"max_o": 1})"), read_options(R"({"max_o": 1.0})"));
  EXPECT_EQ(read_options(R"({"max_o": 0.25})").max_o, 0.25);
  EXPECT_EQ(read_options(R"({"max_lock_steps": 2147483647})").max_lock_steps, 2147483647);
  EXPECT_EQ(write_options(read_options(R"({"beta": -0.0})")), write_options(read_options(R"({"beta": 0})")));
}

TEST(OptionsJson, WordsAreStrings) {
  const Options options = read_options(R"({"selector": "evidence-alarm", "guard": "clip"})");
  EXPECT_EQ(options.selector, Selector::evidence_after_alarm);
  EXPECT_EQ(options.guard, Guard::clip);
  EXPECT_EQ(read_options(R"({"preset": "paper"})").selector, Selector::norms);
  EXPECT_NE(write_options(options).find(R"("selector":"evidence-alarm","guard":"clip")"), std::string::npos);
  EXPECT_EQ(options_error(R"({"selector": "trails"})"),
            "[options] option `selector`: expected one of auto, norms, evidence, evidence-alarm, trial, got "
            "\"trails\"; did you mean 'trial'?");
  EXPECT_EQ(options_error(R"({"guard": 1})"),
            "[options] option `guard`: expected one of none, clip, skip, replay, got a number");
  EXPECT_EQ(options_error(R"({"tau": "2"})"), "[options] option `tau`: expected a number, got a string");
}

TEST(OptionsJson, ErrorsNameTheOption) {
  for (const auto& [json_text, name] : std::vector<std::pair<std::string, std::string>>{
           {R"({"max_o": 2.5})", "max_o"},
           {R"({"window": 2.5})", "window"},
           {R"({"window": 0})", "window"},
           {R"({"window": 99999999999999999999999})", "window"},
           {R"({"lock_steps": 2147483648})", "lock_steps"},
           {R"({"tau": 1e999})", "tau"},
           {R"({"tau": -1e999})", "tau"},
           {R"({"tau": "2"})", "tau"},
           {R"({"tau": true})", "tau"},
           {R"({"tau": null})", "tau"},
           {R"({"tau": [2]})", "tau"},
           {R"({"tau": {"tau": 2}})", "tau"},
           {R"({"tau": 2, "beta": 0.5, "tau": 2})", "tau"},
           {R"({"Tau": 2})", "Tau"},
           {R"({"": 2})", "\"\""},
           {R"({"lag": 1, "lock_steps": 1})", "lag"},
           {R"({"selector": null})", "selector"},
           {R"({"selector": ""})", "selector"},
           {R"({"selector": "Trial"})", "selector"},
           {R"({"guard": "clip", "guard": "clip"})", "guard"},
           {R"({"error_floor": -1})", "error_floor"},
           {R"({"preset": "papers"})", "preset"},
           {R"({"preset": 1})", "preset"},
           {R"({"preset": null})", "preset"},
           {R"({"preset": ["paper"]})", "preset"},
           {R"({"preset": "paper", "preset": "paper"})", "preset"},
       }) {
    EXPECT_NE(options_error(json_text).find(name), std::string::npos) << json_text << ": " << options_error(json_text);
  }
}

TEST(OptionsJson, WhatIsNotOneJsonObjectIsAnError) {
  for (const char* json_text :
       {"", " ", "[]", "3", "\"paper\"", "null", "true", "{", "{}{}", "{} x", "{\"tau\" 2}", "{\"tau\": 2,}",
        "{\"tau\": 02}", "{\"tau\": NaN}", "{'tau': 2}", "// a\n{}", "{\"ta\xFF\": 2}"}) {
    EXPECT_NE(options_error(json_text), "") << json_text;
  }
  EXPECT_NE(options_error(std::string(100000, '[')), "");
  EXPECT_LT(options_error("{\"" + std::string(100000, 'x') + "\": 1}").size(), 300U);
}

TEST(OptionsJson, WrittenOptionsReadBackEqual) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> fraction(0, 1);
  for (int round = 0; round < 500; ++round) {
    Options options;
    for (const OptionSpec& spec : option_specs()) {
      const double wild = round % 2 == 0 ? fraction(random) : 1 + 1000 * fraction(random);
      for (const double value : {wild, std::floor(wild)}) {
        if (spec.range.contains(value)) spec.set_unchecked(options, value);
      }
    }
    options.lag = 0;
    const std::string text = write_options(options);
    ASSERT_EQ(read_options(text), options) << text;
    ASSERT_EQ(text.find('\n'), std::string::npos);
  }
}

TEST(OptionsJson, EveryOptionIsWrittenOnceUnderItsName) {
  const nlohmann::json written = nlohmann::json::parse(write_options(Options::preset("paper")));
  ASSERT_EQ(written.size(), kOptionCount);
  EXPECT_EQ(written.at("fall_tau"), 0);
  EXPECT_EQ(written.at("max_lock_steps"), 0);
  EXPECT_EQ(written.at("noise_beta"), 0.98);
}

TEST(OptionsJson, FilesNameTheirPath) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("options.json");
  test::put_file(path, R"({"preset":"paper","tau":1.5})");
  EXPECT_EQ(read_options_file(path).tau, 1.5);
  test::put_file(path, R"({"taus":1.5})");
  const std::string error = error_of<Error>([&] { read_options_file(path); });
  EXPECT_TRUE(error.starts_with(path)) << error;
  EXPECT_NE(error.find("taus"), std::string::npos);
  EXPECT_NE(error_of<Error>([&] { read_options_file(folder.file("none.json")); }).find("none.json"), std::string::npos);
  EXPECT_NE(error_of<Error>([] { read_options_file("/dev/zero"); }).find("larger"), std::string::npos);
}

TEST(OptionsJson, MarkdownHasAnItemForEachOption) {
  const std::vector<std::string> lines = test::lines_of(options_markdown());
  std::vector<std::string> items;
  for (const std::string& line : lines) {
    if (line.starts_with("- `")) items.push_back(line);
    EXPECT_LE(line.size(), 120U) << line;
    EXPECT_TRUE(line.starts_with("- `") || line.starts_with("  ")) << line;
  }
  ASSERT_EQ(items.size(), kOptionCount);
  EXPECT_EQ(items[0], "- `beta` = 0.9 (`paper`: 0.9), [0, 1): decay of the historical mean");
  EXPECT_TRUE(items[19].starts_with("- `selector` = auto (`paper`: norms), one of auto, norms, ")) << items[19];
  EXPECT_EQ(option_flag("max_lock_steps"), "--max-lock-steps");
}

}  // namespace
}  // namespace gnmr::io
