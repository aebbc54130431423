// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/suite_file.h"

#include <array>
#include <utility>

#include "gnmr/core/error.h"
#include "gnmr/io/json.h"
#include "gnmr/io/whole_file.h"
#include "gnmr/lab/setting_texts.h"

namespace gnmr::lab {
namespace {

constexpr std::int64_t kSuiteVersion = 1;
constexpr std::size_t kLargestSuiteFile = std::size_t{64} << 20U;
constexpr std::array<std::pair<ArmRule, const char*>, 6> kRules{{{ArmRule::plain, "plain"},
                                                                 {ArmRule::apart, "apart"},
                                                                 {ArmRule::random_units, "random_units"},
                                                                 {ArmRule::random_total, "random_total"},
                                                                 {ArmRule::ends_high, "ends_high"},
                                                                 {ArmRule::late_high, "late_high"}}};

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

io::OrderedJson arm_json(const SuiteArm& arm) {
  std::vector<std::string> command{"gnmr", "train"};
  for (std::string& argument : train_arguments(arm.settings)) command.push_back(std::move(argument));
  io::OrderedJson object{
      {"name", arm.arm.name}, {"label", arm.arm.label}, {"about", arm.arm.about}, {"rule", rule_name(arm.arm.rule)}};
  if (!arm.arm.needs.empty()) object["needs"] = arm.arm.needs;
  object["command"] = shell_line(command);
  object["settings"] = io::OrderedJson::parse(run::write_settings(arm.settings));
  return object;
}

/// Of files that do not say it.
std::string usual_needs(ArmRule rule) {
  if (rule == ArmRule::random_units) return "gnmr";
  return rule == ArmRule::ends_high ? "low" : "";
}

/// Whether settings and rules are read too. Those of another version may not be known here.
enum class Detail : std::uint8_t { all, outline };

SuiteArm arm_of(const io::JsonObject& object, Detail detail) {
  const std::string name = object.text("name");
  SuiteArm arm{.arm = {.name = name,
                       .label = object.text_if("label").value_or(name),
                       .about = object.text_if("about").value_or("")},
               .settings = {}};
  if (detail == Detail::outline) return arm;
  arm.arm.rule = rule_of(object.text("rule"));
  arm.arm.needs = object.text_if("needs").value_or(usual_needs(arm.arm.rule));
  arm.settings = run::read_settings(object.object("settings"));
  return arm;
}

SuiteFile suite_of(const io::JsonObject& object, Detail detail) {
  object.check_version(kSuiteVersion);
  const auto wanted = [&](const char* key) { return detail == Detail::all || object.has(key); };
  SuiteFile suite{.title = object.text_if("title").value_or(""),
                  .threads = object.whole_if("threads").value_or(0),
                  .fault = object.text_if("fault").value_or("")};
  if (wanted("notes")) suite.notes = object.texts("notes");
  if (wanted("seeds")) suite.seeds = object.wholes("seeds");
  if (!wanted("arms")) return suite;
  for (const io::JsonObject& arm : object.objects("arms")) suite.arms.push_back(arm_of(arm, detail));
  return suite;
}

SuiteFile suite_in(const std::string& path, Detail detail) {
  return io::read_json_object(io::read_whole_file(path, kLargestSuiteFile), path,
                              [&](const io::JsonObject& object) { return suite_of(object, detail); });
}

}  // namespace

void write_suite_file(const std::string& path, const SuiteFile& suite) {
  io::OrderedJson object{{"version", kSuiteVersion},
                         {"title", suite.title},
                         {"notes", suite.notes},
                         {"seeds", suite.seeds},
                         {"threads", suite.threads}};
  if (!suite.fault.empty()) object["fault"] = suite.fault;
  object["arms"] = io::OrderedJson::array();
  for (const SuiteArm& arm : suite.arms) object["arms"].push_back(arm_json(arm));
  io::replace_file(path, object.dump(2) + "\n");
}

SuiteFile read_suite_file(const std::string& path) { return suite_in(path, Detail::all); }

SuiteFile read_suite_outline(const std::string& path) { return suite_in(path, Detail::outline); }

}  // namespace gnmr::lab
