// SPDX-License-Identifier: Apache-2.0
// The recipes that the program carries, as they stand in gnmr/recipes/builtin.
#pragma once

#include <span>
#include <string_view>

namespace gnmr::recipes {

/// A name and the JSON behind it.
struct BuiltinRecipe {
  std::string_view name;
  std::string_view json;
};

/// All of them, by name.
std::span<const BuiltinRecipe> builtin_recipes();

}  // namespace gnmr::recipes
