// SPDX-License-Identifier: Apache-2.0
// What the low path of one layer remembers under delayed scaling: a history for each operand of each product.
//
// Goals: it goes on whatever path is taken; a step that is run again counts once; plain text for checkpoints.
// Non-goals: finding amaxes, casts. It belongs to one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gnmr/formats/delayed_scaling.h"
#include "gnmr/recipes/recipe.h"

namespace gnmr::recipes {

/// Calls `visit(product, place, rule)` for each cast with a memory, in the order of `DelayedMemory::states`.
template <class Visit>
void for_delayed(const Recipe& recipe, const Visit& visit) {
  for (std::size_t product = 0; product < kProductCount; ++product) {
    for (std::size_t place = 0; place < 2; ++place) {
      const std::optional<CastRule>& rule = recipe.rules[product][place];
      if (rule && rule->grouping == Grouping::delayed) visit(product, place, *rule);
    }
  }
}

/// The memory of one layer.
class DelayedMemory {
 public:
  /// The recipe is copied; without delayed scaling there is nothing to remember.
  explicit DelayedMemory(const Recipe& recipe) : recipe_(recipe) {}

  /// Whether an operand's amax is remembered.
  bool wants(Operand operand) const { return recipe_.uses_delayed(operand); }

  /// The operand has this largest magnitude in a micro-batch of the step; the largest of them is kept.
  void note(Operand operand, float amax);

  /// The scale of an operand, where something is remembered; else 0.
  float scale(Product product, std::size_t place) const;

  /// The step begins, or begins again: what was noted of it is forgotten.
  void begin_step() { noted_.fill(kNothing); }

  /// What was noted enters the histories.
  void end_step();

  /// One state a cast with a memory, for a backend that remembers elsewhere.
  std::vector<formats::DelayedState> states() const;

  /// Takes over as many, else an `Error`.
  void set_states(std::span<const formats::DelayedState> states);

  /// All that is remembered, as JSON; what was noted in a step is not part of it.
  std::string save() const;

  /// Takes it over; an `Error`, with nothing changed, for what no memory of this recipe can have written.
  void restore(std::string_view text);

 private:
  using States = std::array<std::array<formats::DelayedState, 2>, kProductCount>;
  static constexpr float kNothing = -1;

  Recipe recipe_;
  States states_{};
  std::array<float, kOperandCount> noted_{kNothing, kNothing, kNothing};
};

}  // namespace gnmr::recipes
