// SPDX-License-Identifier: Apache-2.0
// What the low path of one layer remembers under delayed scaling: a history for each operand of each GEMM.
//
// Goals: it goes on whatever path is taken; a step that runs again counts once.
// Non-goals: finding an amax, quantizing; histories on a device (device_numbers.h). It belongs to one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <optional>

#include "gnmr/formats/delayed_scaling.h"
#include "gnmr/recipes/recipe.h"

namespace gnmr::low {

/// Calls `visit(product, place, rule)` for each operand with delayed scaling, GEMM by GEMM.
template <class Visit>
void for_delayed(const recipes::Recipe& recipe, const Visit& visit) {
  for (std::size_t product = 0; product < recipes::kProductCount; ++product) {
    for (std::size_t place = 0; place < 2; ++place) {
      const std::optional<recipes::CastRule>& rule = recipe.rules[product][place];
      if (rule && rule->grouping == recipes::Grouping::delayed) visit(product, place, *rule);
    }
  }
}

/// The histories of one layer on the host. Functions take the recipe of the layer, always the same one.
struct AmaxHistory {
  std::array<std::array<formats::DelayedState, 2>, recipes::kProductCount> delayed{};
  // The largest finite magnitude of each operand so far in this step; below 0: none was seen.
  std::array<float, recipes::kOperandCount> step_amax{-1, -1, -1};

  /// The operand has this largest magnitude in a micro-batch of the step; the largest of them is kept.
  void note(recipes::Operand operand, float amax);

  /// The scale of an operand; none before anything was observed.
  std::optional<float> scale(recipes::Product product, std::size_t place) const;

  /// The step begins, or begins again: its magnitudes are forgotten.
  void begin_step() { step_amax.fill(-1.0f); }

  /// The magnitudes of the step enter the histories.
  void end_step(const recipes::Recipe& recipe);
};

}  // namespace gnmr::low
