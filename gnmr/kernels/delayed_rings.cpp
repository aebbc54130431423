// SPDX-License-Identifier: Apache-2.0
#include "gnmr/kernels/delayed_rings.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "gnmr/core/error.h"

namespace gnmr::kernels {
namespace {

std::uint64_t slots_of(std::span<const RingRule> rules) {
  return rules.empty() ? 0 : rules.back().first + rules.back().length;
}

void check_state(const formats::DelayedState& state, std::size_t tensor) {
  const auto is_good = [](float number) { return std::isfinite(number) && number >= 0; };
  if (!std::all_of(state.amax_history.begin(), state.amax_history.end(), is_good) || !is_good(state.scale)) {
    throw Error("[delayed scales, tensor " + std::to_string(tensor) +
                "] expected amaxes and a scale that are finite and not negative");
  }
}

}  // namespace

void check_delayed(std::span<const DelayedTensor> tensors) {
  for (std::size_t tensor = 0; tensor < tensors.size(); ++tensor) {
    const formats::DelayedScaling& rule = tensors[tensor].rule;
    if (rule.history_length > 0 && rule.update_interval > 0) continue;
    throw Error("[delayed scales, tensor " + std::to_string(tensor) +
                "] expected a history length and an update interval of at least 1");
  }
}

std::vector<RingRule> ring_rules(std::span<const DelayedTensor> tensors) {
  check_delayed(tensors);
  std::vector<RingRule> rules;
  std::uint64_t first = 0;
  for (const DelayedTensor& tensor : tensors) {
    rules.push_back({.first = first,
                     .length = tensor.rule.history_length,
                     .interval = tensor.rule.update_interval,
                     .amax = tensor.amax,
                     .totals = tensor.totals,
                     .margin = tensor.rule.margin,
                     .largest = formats::layout_of(tensor.rule.format).max,
                     .takes_newest = tensor.rule.choice == formats::AmaxChoice::newest});
    first += tensor.rule.history_length;
  }
  return rules;
}

Rings rings_of(std::span<const RingRule> rules, std::span<const formats::DelayedState> states) {
  if (states.size() != rules.size()) {
    throw Error("[delayed scales] expected states of " + std::to_string(rules.size()) + " tensors, got " +
                std::to_string(states.size()));
  }
  Rings rings{.states = {}, .slots = std::vector<float>(slots_of(rules))};
  for (std::size_t tensor = 0; tensor < rules.size(); ++tensor) {
    const formats::DelayedState& state = states[tensor];
    const RingRule& rule = rules[tensor];
    check_state(state, tensor);
    const std::vector<float>& history = state.amax_history;
    const auto size = static_cast<std::uint32_t>(std::min<std::size_t>(history.size(), rule.length));
    std::copy(history.end() - size, history.end(), rings.slots.begin() + static_cast<std::ptrdiff_t>(rule.first));
    rings.states.push_back({.observations = state.observations,
                            .size = size,
                            .next = size == rule.length ? 0 : size,
                            .scale = state.scale,
                            .debt = state.refresh_debt,
                            .refreshes = state.refreshes});
  }
  return rings;
}

std::vector<formats::DelayedState> states_of(std::span<const RingRule> rules, const Rings& rings) {
  std::vector<formats::DelayedState> states;
  for (std::size_t tensor = 0; tensor < rules.size(); ++tensor) {
    const RingRule& rule = rules[tensor];
    const RingState& ring = rings.states[tensor];
    formats::DelayedState state{.amax_history = {},
                                .observations = ring.observations,
                                .scale = ring.scale,
                                .refreshes = ring.refreshes,
                                .refresh_debt = ring.debt};
    for (std::uint32_t i = 0; i < ring.size; ++i) {
      const std::uint32_t slot = ring.size == rule.length ? (ring.next + i) % rule.length : i;
      state.amax_history.push_back(rings.slots[rule.first + slot]);
    }
    states.push_back(std::move(state));
  }
  return states;
}

}  // namespace gnmr::kernels
