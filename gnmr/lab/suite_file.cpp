// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/suite_file.h"

#include <array>
#include <utility>

#include "gnmr/core/error.h"
#include "gnmr/io/text_error.h"
#include "gnmr/io/whole_file.h"
#include "gnmr/lab/json_values.h"
#include "gnmr/lab/setting_texts.h"

namespace gnmr::lab {
namespace {

constexpr std::int64_t kSuiteVersion = 1;
constexpr std::array<std::pair<ArmRule, const char*>, 4> kRules{{{ArmRule::plain, "plain"},
                                                                 {ArmRule::apart, "apart"},
                                                                 {ArmRule::random_units, "random_units"},
                                                                 {ArmRule::ends_high, "ends_high"}}};

const char* rule_name(ArmRule rule) {
  for (const auto& [known, name] : kRules) {
    if (known == rule) return name;
  }
  return "";
}

ArmRule rule_of(const std::string& name) {
  for (const auto& [rule, known] : kRules) {
    if (name == known) return rule;
  }
  throw Error("`rule`: not known: " + name);
}

Json arm_json(const SuiteArm& arm) {
  std::vector<std::string> command{"gnmr", "train"};
  for (std::string& argument : train_arguments(arm.settings)) command.push_back(std::move(argument));
  Json object{
      {"name", arm.arm.name}, {"label", arm.arm.label}, {"about", arm.arm.about}, {"rule", rule_name(arm.arm.rule)}};
  if (!arm.arm.needs.empty()) object["needs"] = arm.arm.needs;
  object["command"] = shell_line(command);
  object["settings"] = Json::parse(run::write_settings(arm.settings));
  return object;
}

/// Of files that do not say it.
std::string usual_needs(ArmRule rule) {
  if (rule == ArmRule::random_units) return "gnmr";
  return rule == ArmRule::ends_high ? "low" : "";
}

SuiteArm arm_of(const Json& object) {
  if (!object.is_object()) throw Error("`arms`: expected objects");
  const auto text = [&](const char* key) { return run::text_of(run::field(object, key), key); };
  const ArmRule rule = rule_of(text("rule"));
  return {.arm = {.name = text("name"),
                  .label = text("label"),
                  .about = text("about"),
                  .rule = rule,
                  .needs = object.contains("needs") ? text("needs") : usual_needs(rule)},
          .settings = run::read_settings(run::field(object, "settings").dump())};
}

const Json& array_of(const Json& object, const char* key) {
  const Json& array = run::field(object, key);
  if (!array.is_array()) throw Error(std::string("`") + key + "`: expected a list");
  return array;
}

SuiteFile suite_of(const Json& object) {
  const std::int64_t version = run::whole_of(run::field(object, "version"), "version");
  if (version != kSuiteVersion) {
    throw Error("version " + std::to_string(version) + ", this program reads " + std::to_string(kSuiteVersion));
  }
  SuiteFile suite{.title = run::text_of(run::field(object, "title"), "title"),
                  .threads = run::whole_of(run::field(object, "threads"), "threads")};
  if (object.contains("fault")) suite.fault = run::text_of(object.at("fault"), "fault");
  for (const Json& note : array_of(object, "notes")) suite.notes.push_back(run::text_of(note, "notes"));
  for (const Json& seed : array_of(object, "seeds")) suite.seeds.push_back(run::whole_of(seed, "seeds"));
  for (const Json& arm : array_of(object, "arms")) suite.arms.push_back(arm_of(arm));
  return suite;
}

}  // namespace

void write_suite_file(const std::string& path, const SuiteFile& suite) {
  Json object{{"version", kSuiteVersion},
              {"title", suite.title},
              {"notes", suite.notes},
              {"seeds", suite.seeds},
              {"threads", suite.threads}};
  if (!suite.fault.empty()) object["fault"] = suite.fault;
  object["arms"] = Json::array();
  for (const SuiteArm& arm : suite.arms) object["arms"].push_back(arm_json(arm));
  io::replace_file(path, object.dump(2) + "\n");
}

SuiteFile read_suite_file(const std::string& path) {
  try {
    return suite_of(run::parse_object(io::read_whole_file(path)));
  } catch (const Error& error) {
    const std::string what = error.what();
    if (what.starts_with(path)) throw;
    throw io::error_at(path, what);
  }
}

}  // namespace gnmr::lab
