// SPDX-License-Identifier: Apache-2.0
#include "gnmr/run/train_settings.h"

#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "gnmr/core/error.h"
#include "io/temporary_folder.h"

namespace gnmr::run {
namespace {

using gnmr::test::error_of;

/// The message for settings in which one thing was changed.
template <typename Change>
std::string refusal(Change change) {
  TrainSettings settings;
  change(settings);
  return error_of<Error>([&] { validate(settings); });
}

// Gives every setting another value than its default.
struct ChangeValue {
  void operator()(std::string* value) const { *value += "x\n\"\\"; }
  void operator()(std::int64_t* value) const { *value += 7; }
  void operator()(double* value) const { *value = *value / 3 + 1e-17; }
  void operator()(bool* value) const { *value = !*value; }
  void operator()(Texts* value) const { *value = {"one", "", "tw\xC3\xB6 \t"}; }
};

TEST(TrainSettings, DefaultsAreValid) { EXPECT_NO_THROW(validate(TrainSettings{})); }

TEST(TrainSettings, SpecsHaveUniqueNamesAndReachTheirMembers) {
  std::set<std::string_view> names;
  for (const SettingSpec& spec : setting_specs()) {
    EXPECT_TRUE(names.insert(spec.name).second) << spec.name;
    EXPECT_FALSE(spec.help.empty()) << spec.name;
    EXPECT_FALSE(spec.group.empty()) << spec.name;
    TrainSettings settings;
    const bool is_bool = std::holds_alternative<bool*>(spec.get(settings));
    EXPECT_EQ(spec.value.empty(), is_bool) << spec.name;
  }
  TrainSettings settings;
  for (const SettingSpec& spec : setting_specs()) {
    if (spec.name == "steps") *std::get<std::int64_t*>(spec.get(settings)) = 77;
  }
  EXPECT_EQ(settings.steps, 77);
}

TEST(TrainSettings, JsonHasEverySettingAndReadsBack) {
  TrainSettings settings;
  for (const SettingSpec& spec : setting_specs()) std::visit(ChangeValue{}, spec.get(settings));
  settings.options.tau = 3.25;
  const std::string text = write_settings(settings);
  const auto document = nlohmann::json::parse(text);
  EXPECT_EQ(document.size(), setting_specs().size() + 1);
  EXPECT_EQ(document["data"][2], "tw\xC3\xB6 \t");
  EXPECT_EQ(document["options"]["tau"], 3.25);
  EXPECT_EQ(read_settings(text), settings);
  EXPECT_EQ(read_settings(write_settings(TrainSettings{})), TrainSettings{});
}

TEST(TrainSettings, AbsentKeysKeepTheirDefaults) {
  const TrainSettings settings = read_settings(R"({"steps": 5.0, "lr": 1, "data": ["a", "b"], "options": {"tau": 4}})");
  EXPECT_EQ(settings.steps, 5);
  EXPECT_EQ(settings.lr, 1.0);
  EXPECT_EQ(settings.data, (Texts{"a", "b"}));
  EXPECT_EQ(settings.options.tau, 4.0);
  EXPECT_EQ(settings.batch, TrainSettings{}.batch);
}

TEST(TrainSettings, OptionsMayNameAPreset) {
  EXPECT_EQ(read_settings(R"({"options": {"preset": "paper"}})").options, Options::preset("paper"));
}

TEST(TrainSettings, ReadingNamesWhatIsWrong) {
  const auto message = [](const char* text) { return error_of<Error>([&] { read_settings(text); }); };
  EXPECT_EQ(message(R"({"stepz": 5})"), "[settings] unknown setting \"stepz\"; did you mean 'steps'?");
  EXPECT_EQ(message(R"({"steps": "5"})"), "[settings] `steps`: expected a whole number of 64 bits, got string");
  EXPECT_EQ(message(R"({"steps": 2.5})"), "[settings] `steps`: expected a whole number, got 2.5");
  EXPECT_EQ(message(R"({"lr": true})"), "[settings] `lr`: expected a number, got boolean");
  EXPECT_EQ(message(R"({"recompute": 1})"), "[settings] `recompute`: expected true or false, got number");
  EXPECT_EQ(message(R"({"data": "a"})"), "[settings] `data`: expected a list of strings, got string");
  EXPECT_EQ(message(R"({"data": [1]})"), "[settings] `data`: expected a string, got number");
  EXPECT_EQ(message(R"({"steps": 1, "steps": 2})"), "[settings] \"steps\" is there twice");
  EXPECT_EQ(message(R"({"options": {"tua": 2}})"), "[settings] [options] unknown option \"tua\"; did you mean 'tau'?");
  EXPECT_EQ(message("[1]"), "[settings] expected a JSON object, got array");
  EXPECT_EQ(message("{"), "[settings] not JSON: column 2: unexpected end of input; expected string literal");
  EXPECT_EQ(message(R"({"lr": 1e999})"), "[settings] not JSON: the number \"1e999\" is too large");
  EXPECT_EQ(message(R"({"steps": 18446744073709551615})"),
            "[settings] `steps`: expected a whole number of 64 bits, got number");
}

TEST(TrainSettings, ValidationNamesTheSetting) {
  EXPECT_EQ(refusal([](auto& s) { s.steps = 0; }),
            "[settings] `steps`: expected a whole number from 1 to 2147483647, got 0");
  EXPECT_EQ(refusal([](auto& s) { s.controller = "gnrm"; }),
            "[settings] `controller`: expected one of none, gnmr, watch, got \"gnrm\"; did you mean 'gnmr'?");
  EXPECT_EQ(refusal([](auto& s) { s.beta2 = 1; }), "[settings] `beta2`: expected a number in [0, 1), got 1");
  EXPECT_EQ(refusal([](auto& s) {
              s.random_units = {"0.1", "0.2"};
            }),
            "[settings] `random_units`: expected one share, got 2 of them");
}

TEST(TrainSettings, ValidationKnowsEveryRange) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<std::pair<std::string, void (*)(TrainSettings&)>> cases{
      {"model", [](TrainSettings& s) { s.model = ""; }},
      {"recipe", [](TrainSettings& s) { s.recipe = ""; }},
      {"data", [](TrainSettings& s) { s.data = {""}; }},
      {"held_out", [](TrainSettings& s) { s.held_out = 0; }},
      {"held_out", [](TrainSettings& s) { s.held_out = 1; }},
      {"batch", [](TrainSettings& s) { s.batch = 0; }},
      {"sequence", [](TrainSettings& s) { s.sequence = 0; }},
      {"accumulate", [](TrainSettings& s) { s.accumulate = -1; }},
      {"lr", [](TrainSettings& s) { s.lr = 0; }},
      {"min_lr", [](TrainSettings& s) { s.min_lr = 1.5; }},
      {"warmup", [](TrainSettings& s) { s.warmup = -1; }},
      {"weight_decay", [](TrainSettings& s) { s.weight_decay = -1; }},
      {"beta1", [](TrainSettings& s) { s.beta1 = -0.1; }},
      {"clip", [](TrainSettings& s) { s.clip = -1; }},
      {"threads", [](TrainSettings& s) { s.threads = -1; }},
      {"device", [](TrainSettings& s) { s.device = "tpu"; }},
      {"granularity", [](TrainSettings& s) { s.granularity = "model"; }},
      {"save_activations", [](TrainSettings& s) { s.save_activations = "low"; }},
      {"allow", [](TrainSettings& s) { s.allow = {""}; }},
      {"deny", [](TrainSettings& s) { s.deny = {""}; }},
      {"always_high", [](TrainSettings& s) { s.always_high = {""}; }},
      {"watch_steps", [](TrainSettings& s) { s.watch_steps = -1; }},
      {"set", [](TrainSettings& s) { s.set = {"head"}; }},
      {"random_units", [](TrainSettings& s) { s.random_units = {"1"}; }},
      {"random_units", [](TrainSettings& s) { s.random_units = {"some"}; }},
      {"eval_every", [](TrainSettings& s) { s.eval_every = -1; }},
      {"eval_batches", [](TrainSettings& s) { s.eval_batches = 0; }},
      {"checkpoint_every", [](TrainSettings& s) { s.checkpoint_every = -1; }},
      {"keep_checkpoints", [](TrainSettings& s) { s.keep_checkpoints = -1; }},
      {"resume_step", [](TrainSettings& s) { s.resume_step = -1; }},
      {"resume_step", [](TrainSettings& s) { s.resume_step = 5; }},
      {"signals_every", [](TrainSettings& s) { s.signals_every = -1; }},
  };
  for (const auto& [name, change] : cases) {
    EXPECT_TRUE(refusal(change).starts_with("[settings] `" + name + "`: ")) << name;
  }
  for (const double value : {nan, infinity}) {
    EXPECT_NE(refusal([&](auto& s) { s.lr = value; }), "");
    EXPECT_NE(refusal([&](auto& s) { s.clip = value; }), "");
  }
  EXPECT_NE(refusal([](auto& s) { s.options.tau = 0; }).find("tau"), std::string::npos);
}

TEST(TrainSettings, ResumeComparesWhatShapesTheRun) {
  TrainSettings before;
  for (const char* name :
       {"steps", "seed", "batch", "sequence", "accumulate", "lr", "model", "recipe", "held_out", "granularity",
        "device", "threads", "always_high", "faults", "fault_seed", "then_at", "then_lr"}) {
    TrainSettings now = before;
    for (const SettingSpec& spec : setting_specs()) {
      if (spec.name == name) std::visit(ChangeValue{}, spec.get(now));
    }
    EXPECT_EQ(changed_on_resume(before, now), std::vector<std::string>{name});
  }
  // Every setting is compared, or is one of those that the header names.
  std::size_t free_settings = 0;
  for (const SettingSpec& spec : setting_specs()) {
    TrainSettings now = before;
    std::visit(ChangeValue{}, spec.get(now));
    if (changed_on_resume(before, now).empty()) ++free_settings;
  }
  EXPECT_EQ(free_settings, 27U);
  TrainSettings now = before;
  now.out = "elsewhere";
  now.resume = true;
  now.controller = "watch";
  now.options.tau = 9;
  EXPECT_TRUE(changed_on_resume(before, now).empty());
}

TEST(TrainSettings, FolderIsNamedAfterTheRun) {
  TrainSettings settings;
  EXPECT_EQ(default_run_folder(settings), "runs/nano-fp8-delayed-gnmr-seed0");
  settings.model = "/models/my llama/config.json";
  settings.recipe = "recipes/mine.json";
  settings.seed = 3;
  settings.random_units = {"0.05"};
  EXPECT_EQ(default_run_folder(settings), "runs/my_llama-mine-random-seed3");
}

TEST(TrainSettings, PageIsFresh) {
  std::ifstream page(std::string(GNMR_DOCS_DIR) + "/train.md");
  ASSERT_TRUE(page.is_open());
  std::stringstream text;
  text << page.rdbuf();
  EXPECT_NE(text.str().find(settings_markdown()), std::string::npos) << "docs/train.md is stale: its table should be\n"
                                                                     << settings_markdown();
}

}  // namespace
}  // namespace gnmr::run
