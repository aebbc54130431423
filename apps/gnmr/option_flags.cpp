// SPDX-License-Identifier: Apache-2.0
#include "gnmr/option_flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "gnmr/exit_codes.h"
#include "gnmr/flag_values.h"
#include "gnmr/io/options_json.h"

namespace gnmr::app {

void OptionFlags::add_to(CLI::App& command) {
  constexpr const char* kGroup = "Controller options";
  command.add_option("--preset", preset_, "Start from these values: `default` or `paper`")
      ->type_name("NAME")
      ->group(kGroup);
  command.add_option("--config", config_path_, "JSON object of option names and values, and `preset`")
      ->type_name("FILE")
      ->group(kGroup);
  for (const OptionSpec& spec : option_specs()) {
    const std::string name(spec.name);
    std::string shown = io::option_text(spec, spec.default_value);
    if (spec.paper_value != spec.default_value) shown += ", paper " + io::option_text(spec, spec.paper_value);
    command
        .add_option_function<std::string>(
            io::option_flag(spec.name), [this, name](const std::string& text) { values_[name] = text; },
            fmt::format("{} [{}] ({})", spec.help, shown, spec.range.description()))
        ->type_name(spec.is_word() ? "WORD" : "X")
        ->group(kGroup);
  }
}

Options OptionFlags::options() const {
  Options options;
  if (!config_path_.empty()) {
    options = with_exit_code(kInputError, [this] { return io::read_options_file(config_path_, preset_); });
  } else if (!preset_.empty()) {
    options = with_exit_code(kUsageError, [this] { return Options::preset(preset_); });
  }
  with_exit_code(kUsageError, [&] {
    for (const auto& [name, text] : values_) {
      if (find_option(name)->is_word()) {
        set_option(options, name, std::string_view(text));
        continue;
      }
      set_option(options, name, number_value(io::option_flag(name), text));
    }
    validate(options);
  });
  return options;
}

std::vector<std::string> OptionFlags::named() const {
  std::vector<std::string> names;
  if (!config_path_.empty()) {
    with_exit_code(kInputError, [&] { return io::read_options_file(config_path_, preset_, &names); });
  }
  for (std::string& name : named_by_flags()) names.push_back(std::move(name));
  return names;
}

std::vector<std::string> OptionFlags::named_by_flags() const {
  std::vector<std::string> names;
  for (const auto& [name, text] : values_) names.push_back(name);
  return names;
}

}  // namespace gnmr::app
