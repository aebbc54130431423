// SPDX-License-Identifier: Apache-2.0
// `gnmr recipes`: the built-in recipes, and each as a file to start one's own from.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "gnmr/commands.h"
#include "gnmr/exit_codes.h"
#include "gnmr/messages.h"
#include "gnmr/recipes/recipe.h"

namespace gnmr::app {

void add_recipes_command(CLI::App& program, Command& chosen) {
  CLI::App* const command = program.add_subcommand("recipes", "List the recipes, or print one as JSON");
  const auto name = std::make_shared<std::string>();
  command->add_option("name", *name, "A recipe to print, or a file to check")->type_name("NAME|FILE");
  command->footer(
      std::string("Examples:\n"
                  "  gnmr recipes\n"
                  "  gnmr recipes fp8-delayed > my.json      then edit it and `gnmr train --recipe my.json`\n"
                  "  gnmr recipes my.json                    is it a recipe?\n\n") +
      kExitCodesHelp);
  command->callback([&chosen, name] {
    chosen = [name] {
      if (name->empty()) {
        put(stdout, fmt::format("{:<16} {}\n", "none", "Everything in high precision."));
        for (const std::string& known : recipes::recipe_names()) {
          put(stdout, fmt::format("{:<16} {}\n", known, recipes::load_recipe(known).about));
        }
        return static_cast<int>(kOk);
      }
      const recipes::Recipe recipe = recipes::load_recipe(*name);
      if (recipe.name == *name) {
        put(stdout, recipes::recipe_json(*name));
      } else {
        put(stdout, fmt::format("{}: a recipe named {}\n", *name, recipe.name));
        if (recipe.has_ladder()) {
          put(stdout,
              fmt::format("units in recovery run {}: {:.2f} of the cost of high precision, by bits of operands\n",
                          recipes::recovery_text(recipe), recipe.recovery_cost()));
        }
      }
      return static_cast<int>(kOk);
    };
  });
}

}  // namespace gnmr::app
