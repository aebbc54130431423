// SPDX-License-Identifier: Apache-2.0
#include "gnmr/recipes/delayed_states.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "gnmr/core/error.h"

namespace gnmr::recipes {
namespace {

using nlohmann::json;

[[noreturn]] void refuse(const std::string& what) { throw Error("[delayed scaling] expected " + what); }

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

std::string delayed_states_text(std::span<const formats::DelayedState> states) {
  json all = json::array();
  for (const formats::DelayedState& state : states) {
    all.push_back({{"history", state.amax_history}, {"observations", state.observations}, {"scale", state.scale}});
  }
  return all.dump();
}

std::vector<formats::DelayedState> parse_delayed_states(const Recipe& recipe, std::string_view text) {
  const json all = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!all.is_array()) refuse("a list");
  std::vector<formats::DelayedState> states;
  for_delayed(recipe, [&](std::size_t, std::size_t, const CastRule& rule) {
    if (states.size() >= all.size()) refuse("more operands: the state is of another recipe");
    states.push_back(read_state(all[states.size()], rule));
  });
  if (states.size() != all.size()) refuse("fewer operands: the state is of another recipe");
  return states;
}

}  // namespace gnmr::recipes
