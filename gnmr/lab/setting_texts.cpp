// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/setting_texts.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <sstream>
#include <variant>

#include "gnmr/core/error.h"
#include "gnmr/core/message_text.h"
#include "gnmr/io/json.h"
#include "gnmr/io/json_text.h"
#include "gnmr/io/number_text.h"
#include "gnmr/io/options_json.h"
#include "gnmr/io/whole_file.h"
#include "gnmr/lab/experiment_check.h"

namespace gnmr::lab {
namespace {

constexpr std::string_view kPresetName = "preset";

run::Texts words_of(const std::string& text) {
  run::Texts words;
  std::istringstream stream(text);
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

double number_of(const SettingText& text) {
  double value = 0;
  if (!io::parse_number(text.value, value)) {
    throw Error(fmt::format("`{}`: expected a number, got {}", text.name, io::in_quotes(text.value)));
  }
  return value;
}

struct SetValue {
  const SettingText& text;

  void operator()(std::string* target) const { *target = text.value; }
  void operator()(run::Texts* target) const { *target = words_of(text.value); }
  void operator()(double* target) const { *target = number_of(text); }
  void operator()(std::int64_t* target) const {
    if (!io::parse_whole_value(text.value, *target)) {
      throw Error(fmt::format("`{}`: expected a whole number, got {}", text.name, io::in_quotes(text.value)));
    }
  }
  void operator()(bool* target) const {
    if (text.value != "true" && text.value != "false") {
      throw Error(fmt::format("`{}`: expected true or false, got {}", text.name, io::in_quotes(text.value)));
    }
    *target = text.value == "true";
  }
};

void apply(const SettingText& text, run::TrainSettings& settings) {
  for (const run::SettingSpec& spec : run::setting_specs()) {
    if (spec.name == text.name) {
      std::visit(SetValue{text}, spec.get(settings));
      return;
    }
  }
  const OptionSpec* const option = find_option(text.name);
  if (option == nullptr) {
    std::vector<std::string_view> known{kPresetName};
    for (const run::SettingSpec& spec : run::setting_specs()) known.push_back(spec.name);
    for (const OptionSpec& spec : option_specs()) known.push_back(spec.name);
    throw Error(fmt::format("{} is neither a setting of `gnmr train` nor an option of the controller{}",
                            io::in_quotes(text.name), did_you_mean(text.name, known)));
  }
  if (option->is_word()) {
    set_option(settings.options, text.name, std::string_view(text.value));
  } else {
    set_option(settings.options, text.name, number_of(text));
  }
}

/// The flags of one setting; none where it is at its default.
std::vector<std::string> flags_of(const run::SettingSpec& spec, const run::TrainSettings& settings) {
  const std::string text = run::setting_text(spec, settings);
  if (text == run::setting_text(spec, run::TrainSettings{})) return {};
  const std::string flag = io::option_flag(spec.name);
  run::TrainSettings copy = settings;
  const run::SettingPointer pointer = spec.get(copy);
  if (std::holds_alternative<bool*>(pointer)) return {flag};
  std::vector<std::string> flags;
  if (const auto* const list = std::get_if<run::Texts*>(&pointer)) {
    for (const std::string& entry : **list) flags.push_back(flag + "=" + entry);
  } else {
    flags.push_back(flag + "=" + text);
  }
  return flags;
}

/// The flags of the options that have an effect, seen from the preset from which the fewest differ. `gnmr train`
/// refuses the others where a flag names them.
std::vector<std::string> option_flags(const run::TrainSettings& settings) {
  std::optional<std::vector<std::string>> shortest;
  for (const std::string_view preset : kPresetNames) {
    const Options start = Options::preset(preset);
    std::vector<std::string> flags;
    if (preset != kPresetNames.front()) flags.push_back(fmt::format("--preset={}", preset));
    for (const OptionSpec& spec : option_specs()) {
      const double value = spec.get(settings.options);
      if (value == spec.get(start) || !run::why_without_effect(spec.name, settings).empty()) continue;
      flags.push_back(io::option_flag(spec.name) + "=" + io::option_text(spec, value));
    }
    if (!shortest || flags.size() < shortest->size()) shortest = std::move(flags);
  }
  return *shortest;
}

}  // namespace

SettingText parse_setting_text(std::string_view text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    throw Error(fmt::format("expected NAME=VALUE, such as lr=0.01, got {}", io::in_quotes(text)));
  }
  SettingText result{std::string(text.substr(0, equals)), std::string(text.substr(equals + 1))};
  if (result.name.starts_with("--")) result.name.erase(0, 2);
  std::replace(result.name.begin(), result.name.end(), '-', '_');
  return result;
}

run::TrainSettings settings_from_texts(std::span<const std::string> texts) {
  run::TrainSettings settings;
  std::vector<SettingText> parsed;
  for (const std::string& text : texts) {
    SettingText setting = parse_setting_text(text);
    if (setting.name == kPresetName) {
      settings.options = Options::preset(setting.value);
    } else {
      parsed.push_back(std::move(setting));
    }
  }
  for (const SettingText& setting : parsed) apply(setting, settings);
  check_settings(settings);
  return settings;
}

std::vector<std::string> option_texts(const std::string& options_path) {
  const Options options = io::read_options_file(options_path);
  const io::Json object = io::parse_json(io::read_whole_file(options_path));
  std::vector<std::string> texts;
  for (const OptionSpec& spec : option_specs()) {
    if (!object.contains(std::string(spec.name)) && spec.get(options) == spec.default_value) continue;
    texts.push_back(std::string(spec.name) + "=" + io::option_text(spec, spec.get(options)));
  }
  return texts;
}

std::vector<SettingText> changed_settings(const run::TrainSettings& settings) {
  const run::TrainSettings defaults;
  std::vector<SettingText> texts;
  for (const run::SettingSpec& spec : run::setting_specs()) {
    std::string text = run::setting_text(spec, settings);
    if (text != run::setting_text(spec, defaults)) texts.push_back({std::string(spec.name), std::move(text)});
  }
  for (const OptionSpec& spec : option_specs()) {
    const double value = spec.get(settings.options);
    if (value != spec.default_value) texts.push_back({std::string(spec.name), io::option_text(spec, value)});
  }
  return texts;
}

std::vector<std::string> train_arguments(const run::TrainSettings& settings) {
  std::vector<std::string> arguments;
  for (const run::SettingSpec& spec : run::setting_specs()) {
    for (std::string& flag : flags_of(spec, settings)) arguments.push_back(std::move(flag));
  }
  for (std::string& flag : option_flags(settings)) arguments.push_back(std::move(flag));
  return arguments;
}

std::string shell_line(std::span<const std::string> arguments) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=./:@%+,";
  std::string line;
  for (const std::string& argument : arguments) {
    if (!line.empty()) line += ' ';
    if (!argument.empty() && argument.find_first_not_of(kPlain) == std::string::npos) {
      line += argument;
      continue;
    }
    line += '\'';
    for (const char character : argument) line += character == '\'' ? std::string("'\\''") : std::string(1, character);
    line += '\'';
  }
  return line;
}

std::vector<std::string> changed_settings(const run::TrainSettings& before, const run::TrainSettings& now) {
  std::vector<std::string> changed;
  for (const run::SettingSpec& spec : run::setting_specs()) {
    if (run::setting_text(spec, before) != run::setting_text(spec, now)) changed.emplace_back(spec.name);
  }
  for (const OptionSpec& spec : option_specs()) {
    if (spec.get(before.options) != spec.get(now.options)) changed.emplace_back(spec.name);
  }
  return changed;
}

}  // namespace gnmr::lab
