// SPDX-License-Identifier: Apache-2.0
#include "gnmr/train_flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <variant>

#include "gnmr/core/error.h"
#include "gnmr/exit_codes.h"
#include "gnmr/flag_values.h"
#include "gnmr/io/options_json.h"
#include "gnmr/lab/experiment_check.h"
#include "gnmr/recipes/recipe.h"

namespace gnmr::app {
namespace {

/// Adds the flag of one setting; its default stands in brackets unless the help says it.
struct AddFlag {
  CLI::App& command;
  const run::SettingSpec& spec;
  std::string flag;

  void operator()(bool* value) const { named(command.add_flag(flag, *value, std::string(spec.help))); }
  void operator()(run::Texts* value) const {
    CLI::Option* const option = add_texts(command, flag, *value, std::string(spec.help));
    const std::string_view one = spec.value.ends_with("...") ? spec.value.substr(0, spec.value.size() - 3) : spec.value;
    named(option)->type_name(std::string(one));
  }
  void operator()(std::string* value) const { typed(command.add_option(flag, *value, help_with(*value))); }
  void operator()(std::int64_t* value) const {
    typed(add_whole(
        command, flag, [value](std::int64_t number) { *value = number; }, help_with(*value)));
  }
  void operator()(double* value) const {
    const auto set = [name = flag, value](const std::string& text) { *value = number_value(name, text); };
    typed(command.add_option_function<std::string>(flag, set, help_with(*value)));
  }

 private:
  template <class Value>
  std::string help_with(const Value& value) const {
    const std::string shown = fmt::format("{}", value);
    return std::string(spec.help) + (shown.empty() ? "" : fmt::format(" [{}]", shown));
  }
  void typed(CLI::Option* option) const { named(option)->type_name(std::string(spec.value)); }
  CLI::Option* named(CLI::Option* option) const { return option->group(std::string(spec.group)); }
};

}  // namespace

void TrainFlags::add_to(CLI::App& command) {
  for (const run::SettingSpec& spec : run::setting_specs()) {
    std::visit(AddFlag{command, spec, io::option_flag(spec.name)}, spec.get(settings_));
  }
  options_.add_to(command);
}

run::TrainSettings TrainFlags::settings() const {
  run::TrainSettings settings = settings_;
  settings.options = options_.options();
  with_exit_code(kUsageError, [&] {
    lab::check_settings(settings);
    for (const std::string& option : options_.named()) {
      const std::string why = run::why_without_effect(option, settings);
      if (!why.empty()) throw Error(fmt::format("option `{}`: has no effect, since {}; leave it out", option, why));
    }
    // The name of a recipe is known here already; what a file holds is for the engine.
    const bool is_file = settings.recipe.ends_with(".json") || settings.recipe.find('/') != std::string::npos;
    if (!is_file && settings.recipe != "none") recipes::recipe_json(settings.recipe);
  });
  return settings;
}

}  // namespace gnmr::app
