// SPDX-License-Identifier: Apache-2.0
// The states of delayed scaling in the low path of one layer: their order, and their text for checkpoints.
//
// Goals: one order for all who hold such states, on the host or on a device. Non-goals: how a state follows the amax of
// its operand (gnmr/formats/delayed_scaling.h), who holds it (gnmr/low).
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gnmr/formats/delayed_scaling.h"
#include "gnmr/recipes/recipe.h"

namespace gnmr::recipes {

/// Calls `visit(product, place, rule)` for each operand with delayed scaling, GEMM by GEMM: the order of its states.
template <class Visit>
void for_delayed(const Recipe& recipe, const Visit& visit) {
  for (std::size_t product = 0; product < kProductCount; ++product) {
    for (std::size_t place = 0; place < 2; ++place) {
      const std::optional<CastRule>& rule = recipe.rules[product][place];
      if (rule && rule->grouping == Grouping::delayed) visit(product, place, *rule);
    }
  }
}

/// The states of a layer as JSON.
std::string delayed_states_text(std::span<const formats::DelayedState> states);

/// What that says; an `Error` for what no layer with this recipe can have written.
std::vector<formats::DelayedState> parse_delayed_states(const Recipe& recipe, std::string_view text);

}  // namespace gnmr::recipes
