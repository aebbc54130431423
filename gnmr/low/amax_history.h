// SPDX-License-Identifier: Apache-2.0
// The amax histories of one layer's low path under delayed scaling: one for each operand of each GEMM.
//
// Goals: it goes on whatever path is taken; a step that runs again counts once.
// Non-goals: finding an amax, quantizing; histories on a device (device_numbers.h). It belongs to one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "gnmr/formats/delayed_scaling.h"
#include "gnmr/recipes/recipe.h"

namespace gnmr::low {

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

  /// The magnitudes of the step enter the histories; `refresh`: when a scale is renewed early.
  void end_step(const recipes::Recipe& recipe, const formats::Refresh& refresh = {});

  /// Whether that will renew a scale of an operand of this GEMM that no longer fits.
  bool will_answer(const recipes::Recipe& recipe, recipes::Product product, const formats::Refresh& refresh) const;

  /// The states in the order of `recipes::for_delayed`; as many are taken over.
  std::vector<formats::DelayedState> states(const recipes::Recipe& recipe) const;
  void set_states(const recipes::Recipe& recipe, std::span<const formats::DelayedState> states);
};

}  // namespace gnmr::low
