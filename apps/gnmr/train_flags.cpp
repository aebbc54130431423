// SPDX-License-Identifier: Apache-2.0
#include "gnmr/train_flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <variant>

#include "gnmr/exit_codes.h"
#include "gnmr/io/options_json.h"
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
    CLI::Option* const option = command.add_option(flag, *value, std::string(spec.help));
    // Globs and rules come one a flag or several; what follows a list must begin with `--`.
    option->expected(1, CLI::detail::expected_max_vector_size);
    const std::string_view one = spec.value.ends_with("...") ? spec.value.substr(0, spec.value.size() - 3) : spec.value;
    named(option)->type_name(std::string(one));
  }
  template <class Value>
  void operator()(Value* value) const {
    std::string help(spec.help);
    const std::string shown = fmt::format("{}", *value);
    if (!shown.empty()) help += fmt::format(" [{}]", shown);
    named(command.add_option(flag, *value, help))->type_name(std::string(spec.value));
  }

 private:
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
    run::validate(settings);
    // The name of a recipe is known here already; what a file holds is for the engine.
    const bool is_file = settings.recipe.ends_with(".json") || settings.recipe.find('/') != std::string::npos;
    if (!is_file && settings.recipe != "none") recipes::recipe_json(settings.recipe);
  });
  return settings;
}

}  // namespace gnmr::app
