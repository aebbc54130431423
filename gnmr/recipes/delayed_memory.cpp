// SPDX-License-Identifier: Apache-2.0
#include "gnmr/recipes/delayed_memory.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "gnmr/core/error.h"

namespace gnmr::recipes {
namespace {

using nlohmann::json;

[[noreturn]] void refuse(const std::string& what) { throw Error("[delayed memory] expected " + what); }

formats::DelayedState read_state(const json& from, const CastRule& rule) {
  formats::DelayedState state;
  try {
    state.amax_history = from.at("history").get<std::vector<float>>();
    if (!from.at("observations").is_number_unsigned()) refuse("a whole number of observations");
    state.observations = from.at("observations").get<std::uint64_t>();
    state.scale = from.at("scale").get<float>();
  } catch (const json::exception&) {
    refuse("history, observations and scale of each operand");
  }
  const auto is_amax = [](float amax) { return std::isfinite(amax) && amax >= 0; };
  if (state.amax_history.size() > rule.history_length ||
      !std::all_of(state.amax_history.begin(), state.amax_history.end(), is_amax)) {
    refuse("at most " + std::to_string(rule.history_length) + " finite magnitudes in a history");
  }
  if (!std::isfinite(state.scale) || state.scale <= 0) refuse("a finite scale above 0");
  return state;
}

}  // namespace

void DelayedMemory::note(Operand operand, float amax) {
  float& noted = noted_[static_cast<std::size_t>(operand)];
  noted = std::max(noted, amax);
}

float DelayedMemory::scale(Product product, std::size_t place) const {
  const formats::DelayedState& state = states_[static_cast<std::size_t>(product)][place];
  return state.observations > 0 ? state.scale : 0;
}

void DelayedMemory::end_step() {
  for_delayed(recipe_, [&](std::size_t product, std::size_t place, const CastRule& rule) {
    const Operand operand = operands_of(static_cast<Product>(product))[place];
    const float amax = noted_[static_cast<std::size_t>(operand)];
    if (amax >= 0) formats::observe_amax(rule.delayed_scaling(), amax, states_[product][place]);
  });
  noted_.fill(kNothing);
}

std::vector<formats::DelayedState> DelayedMemory::states() const {
  std::vector<formats::DelayedState> states;
  for_delayed(recipe_, [&](std::size_t product, std::size_t place, const CastRule&) {
    states.push_back(states_[product][place]);
  });
  return states;
}

void DelayedMemory::set_states(std::span<const formats::DelayedState> states) {
  std::size_t wanted = 0;
  for_delayed(recipe_, [&](std::size_t, std::size_t, const CastRule&) { ++wanted; });
  if (states.size() != wanted) {
    refuse(std::to_string(wanted) + " states, got " + std::to_string(states.size()));
  }
  std::size_t next = 0;
  for_delayed(recipe_, [&](std::size_t product, std::size_t place, const CastRule&) {
    states_[product][place] = states[next++];
  });
}

std::string DelayedMemory::save() const {
  json all = json::array();
  for_delayed(recipe_, [&](std::size_t product, std::size_t place, const CastRule&) {
    const formats::DelayedState& state = states_[product][place];
    all.push_back({{"history", state.amax_history}, {"observations", state.observations}, {"scale", state.scale}});
  });
  return all.dump();
}

void DelayedMemory::restore(std::string_view text) {
  const json all = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!all.is_array()) refuse("a list, as `save` writes it");
  States states{};
  std::size_t next = 0;
  for_delayed(recipe_, [&](std::size_t product, std::size_t place, const CastRule& rule) {
    if (next >= all.size()) refuse("more operands: the state is of another recipe");
    states[product][place] = read_state(all[next++], rule);
  });
  if (next != all.size()) refuse("fewer operands: the state is of another recipe");
  states_ = std::move(states);
}

}  // namespace gnmr::recipes
