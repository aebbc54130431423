// SPDX-License-Identifier: Apache-2.0
#include "gnmr/run/train_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>

#include "gnmr/core/error.h"
#include "gnmr/core/message_text.h"
#include "gnmr/io/json.h"
#include "gnmr/io/json_text.h"
#include "gnmr/io/options_json.h"

namespace gnmr::run {
namespace {

constexpr std::string_view kOptionsKey = "options";

// A setting that is added is not here, and so must be equal: the safe side.
constexpr std::string_view kFreeOnResume[] = {"init",
                                              "data",
                                              "then_data",
                                              "recompute",
                                              "graphs",
                                              "recast_weights",
                                              "evidence",
                                              "norms",
                                              "errors",
                                              "patrol",
                                              "refresh",
                                              "evidence_from",
                                              "disarm_after",
                                              "controller",
                                              "watch_steps",
                                              "set",
                                              "random_units",
                                              "out",
                                              "label",
                                              "eval_every",
                                              "eval_batches",
                                              "signals_every",
                                              "resume",
                                              "resume_step",
                                              "checkpoint_every",
                                              "keep_checkpoints",
                                              "checkpoint_retry"};

// Only to read through pointers that are made for writing too.
SettingPointer pointer_of(const SettingSpec& spec, const TrainSettings& settings) {
  return spec.get(const_cast<TrainSettings&>(settings));
}

struct AppendJson {
  std::string& out;

  void operator()(const std::string* value) const { io::append_json_string(out, *value); }
  void operator()(const std::int64_t* value) const { io::append_json_number(out, *value); }
  void operator()(const double* value) const { io::append_json_number(out, *value); }
  void operator()(const bool* value) const { out += *value ? "true" : "false"; }
  void operator()(const Texts* value) const {
    out += '[';
    for (std::size_t i = 0; i < value->size(); ++i) {
      if (i > 0) out += ',';
      io::append_json_string(out, (*value)[i]);
    }
    out += ']';
  }
};

std::string json_of(const SettingSpec& spec, const TrainSettings& settings) {
  std::string text;
  std::visit([&](const auto* value) { AppendJson{text}(value); }, pointer_of(spec, settings));
  return text;
}

struct ReadJson {
  const io::JsonObject& object;
  std::string_view key;

  void operator()(std::string* target) const { *target = object.text(key); }
  void operator()(std::int64_t* target) const { *target = object.whole(key); }
  void operator()(double* target) const { *target = object.number(key); }
  void operator()(bool* target) const { *target = object.truth(key); }
  void operator()(Texts* target) const { *target = object.texts(key); }
};

struct ShowText {
  std::string operator()(const std::string* value) const { return *value; }
  std::string operator()(const std::int64_t* value) const { return fmt::format("{}", *value); }
  std::string operator()(const double* value) const { return fmt::format("{}", *value); }
  std::string operator()(const bool* value) const { return *value ? "true" : "false"; }
  std::string operator()(const Texts* value) const { return fmt::format("{}", fmt::join(*value, " ")); }
};

// A name that can be part of a folder's name: that of the file or folder that a path ends with.
std::string short_name(const std::string& name_or_path) {
  std::filesystem::path path(name_or_path);
  if (path.filename() == "config.json" && path.has_parent_path()) path = path.parent_path();
  if (path.extension() == ".json") path = path.stem();
  std::string name = path.filename().string();
  std::replace_if(
      name.begin(), name.end(),
      [](char c) {
        const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        return !plain && c != '.' && c != '_' && c != '-';
      },
      '_');
  return name;
}

TrainSettings settings_of(const io::JsonObject& object) {
  TrainSettings settings;
  const auto& specs = setting_specs();
  for (const auto& item : object.json().items()) {
    const std::string& key = item.key();  // no structured binding: clang 14 does not capture one
    if (key == kOptionsKey) {
      settings.options = io::read_options(item.value().dump());
      continue;
    }
    const auto spec = std::find_if(specs.begin(), specs.end(), [&](const SettingSpec& s) { return s.name == key; });
    if (spec == specs.end()) {
      throw Error(fmt::format("unknown setting {}{}", io::in_quotes(key),
                              did_you_mean(key, specs, [](const SettingSpec& one) { return one.name; })));
    }
    std::visit(ReadJson{object, spec->name}, spec->get(settings));
  }
  return settings;
}

}  // namespace

const std::vector<SettingSpec>& setting_specs() {
  static const std::vector<SettingSpec> specs{
#define GNMR_SPEC(type, name, default_value, group, value, help) \
  {#name, group, value, help, [](TrainSettings& settings) -> SettingPointer { return &settings.name; }},
#define GNMR_CARRIED_SPEC(type, name, default_value, group, value, help) \
  {#name, group, value, help, [](TrainSettings& settings) -> SettingPointer { return &settings.experiment.name; }},
      GNMR_TRAIN_SETTINGS(GNMR_SPEC) GNMR_EXPERIMENT_SETTINGS(GNMR_CARRIED_SPEC) GNMR_OUTPUT_SETTINGS(GNMR_SPEC)
#undef GNMR_CARRIED_SPEC
#undef GNMR_SPEC
  };
  return specs;
}

std::string write_settings(const TrainSettings& settings) {
  std::string out = "{";
  for (const SettingSpec& spec : setting_specs()) {
    io::append_json_string(out, spec.name);
    out += ':' + json_of(spec, settings) + ',';
  }
  io::append_json_string(out, kOptionsKey);
  return out + ':' + io::write_options(settings.options) + '}';
}

TrainSettings read_settings(std::string_view json_text) {
  try {
    const io::Json document = io::parse_json(json_text);
    return settings_of(io::JsonObject(document));
  } catch (const Error& error) {
    throw Error(fmt::format("[settings] {}", error.what()));
  }
}

TrainSettings read_settings(const io::JsonObject& object) {
  try {
    return settings_of(io::JsonObject(object.json()));
  } catch (const Error& error) {
    throw Error(fmt::format("[settings] {}", error.what()));
  }
}

std::vector<std::string> changed_on_resume(const TrainSettings& before, const TrainSettings& now) {
  std::vector<std::string> changed;
  for (const SettingSpec& spec : setting_specs()) {
    if (std::find(std::begin(kFreeOnResume), std::end(kFreeOnResume), spec.name) != std::end(kFreeOnResume)) continue;
    const bool equal = json_of(spec, before) == json_of(spec, now);
    if (!equal) changed.emplace_back(spec.name);
  }
  return changed;
}

std::string controller_name(const TrainSettings& settings) {
  if (!settings.random_units.empty()) return "random";
  const std::string other = settings.experiment.decider();
  return other.empty() ? settings.controller : other;
}

std::string default_run_folder(const TrainSettings& settings) {
  return fmt::format("runs/{}-{}-{}-seed{}", short_name(settings.model), short_name(settings.recipe),
                     controller_name(settings), settings.seed);
}

std::string setting_text(const SettingSpec& spec, const TrainSettings& settings) {
  return std::visit([](const auto* value) { return ShowText{}(value); }, pointer_of(spec, settings));
}

std::string settings_markdown() {
  const TrainSettings defaults;
  std::string out;
  std::string_view group;
  for (const SettingSpec& spec : setting_specs()) {
    if (spec.group != group) out += fmt::format("{}**{}**\n\n", out.empty() ? "" : "\n", spec.group);
    group = spec.group;
    std::string flag = io::option_flag(spec.name);
    if (!spec.value.empty()) flag += fmt::format(" {}", spec.value);
    std::string shown = setting_text(spec, defaults);
    if (!shown.empty()) shown = fmt::format(" (`{}`)", shown);
    out += io::markdown_item(fmt::format("`{}`{}: {}", flag, shown, spec.help));
  }
  return out;
}

}  // namespace gnmr::run
