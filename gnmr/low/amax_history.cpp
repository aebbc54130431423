// SPDX-License-Identifier: Apache-2.0
#include "gnmr/low/amax_history.h"

#include <algorithm>

#include "gnmr/recipes/delayed_states.h"

namespace gnmr::low {

void AmaxHistory::note(recipes::Operand operand, float amax) {
  float& seen = step_amax[static_cast<std::size_t>(operand)];
  seen = std::max(seen, amax);
}

std::optional<float> AmaxHistory::scale(recipes::Product product, std::size_t place) const {
  const formats::DelayedState& state = delayed[static_cast<std::size_t>(product)][place];
  return state.observations > 0 ? std::optional(state.scale) : std::nullopt;
}

void AmaxHistory::end_step(const recipes::Recipe& recipe, const formats::Refresh& refresh) {
  recipes::for_delayed(recipe, [&](std::size_t product, std::size_t place, const recipes::CastRule& rule) {
    const recipes::Operand operand = recipes::operands_of(static_cast<recipes::Product>(product))[place];
    const float amax = step_amax[static_cast<std::size_t>(operand)];
    if (amax >= 0) formats::observe_amax(rule.delayed_scaling(), amax, delayed[product][place], refresh);
  });
}

bool AmaxHistory::will_answer(const recipes::Recipe& recipe, recipes::Product product,
                              const formats::Refresh& refresh) const {
  bool found = false;
  recipes::for_delayed(recipe, [&](std::size_t which, std::size_t place, const recipes::CastRule& rule) {
    if (which != static_cast<std::size_t>(product)) return;
    const float amax = step_amax[static_cast<std::size_t>(recipes::operands_of(product)[place])];
    found = found || formats::renewal_answers(rule.delayed_scaling(), amax, delayed[which][place], refresh);
  });
  return found;
}

std::vector<formats::DelayedState> AmaxHistory::states(const recipes::Recipe& recipe) const {
  std::vector<formats::DelayedState> states;
  recipes::for_delayed(recipe, [&](std::size_t product, std::size_t place, const recipes::CastRule&) {
    states.push_back(delayed[product][place]);
  });
  return states;
}

void AmaxHistory::set_states(const recipes::Recipe& recipe, std::span<const formats::DelayedState> states) {
  std::size_t next = 0;
  recipes::for_delayed(recipe, [&](std::size_t product, std::size_t place, const recipes::CastRule&) {
    delayed[product][place] = states[next++];
  });
}

}  // namespace gnmr::low
