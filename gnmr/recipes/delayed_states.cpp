// SPDX-License-Identifier: Apache-2.0
#include "gnmr/recipes/delayed_states.h"

#include <algorithm>
#include <limits>

#include "gnmr/core/error.h"
#include "gnmr/io/json.h"

namespace gnmr::recipes {
namespace {

constexpr double kLargestFloat = std::numeric_limits<float>::max();

formats::DelayedState read_state(const io::JsonObject& from, const CastRule& rule) {
  formats::DelayedState state{.amax_history = {}, .observations = from.count("observations")};
  const std::vector<double> history = from.numbers("history");
  const auto is_amax = [](double amax) { return amax >= 0 && amax <= kLargestFloat; };
  if (history.size() > rule.history_length || !std::all_of(history.begin(), history.end(), is_amax)) {
    from.fail("history", "expected at most " + std::to_string(rule.history_length) + " finite magnitudes");
  }
  for (const double amax : history) state.amax_history.push_back(static_cast<float>(amax));
  const double scale = from.number("scale");
  if (!(static_cast<float>(std::min(scale, kLargestFloat)) > 0 && scale <= kLargestFloat))
    from.fail("scale", "expected a finite number above 0");
  state.scale = static_cast<float>(scale);
  state.refreshes = from.count_if("refreshes").value_or(0);
  const std::uint64_t refreshed_at = from.count_if("refreshed_at").value_or(0);  // of earlier versions
  if (refreshed_at > state.observations) from.fail("refreshed_at", "expected no more than observations");
  const std::uint64_t debt =
      from.count_if("refresh_debt").value_or(formats::debt_of_last_refresh(state.observations, refreshed_at));
  if (debt > formats::kMostRefreshDebt) {
    from.fail("refresh_debt", "expected at most " + std::to_string(formats::kMostRefreshDebt));
  }
  state.refresh_debt = static_cast<std::uint32_t>(debt);
  return state;
}

}  // namespace

std::string delayed_states_text(std::span<const formats::DelayedState> states) {
  io::OrderedJson all = io::OrderedJson::array();
  for (const formats::DelayedState& state : states) {
    all.push_back({{"history", state.amax_history}, {"observations", state.observations}, {"scale", state.scale}});
    if (state.refreshes == 0 && state.refresh_debt == 0) continue;
    all.back()["refreshes"] = state.refreshes;
    all.back()["refresh_debt"] = state.refresh_debt;
  }
  return io::json_line(all);
}

std::vector<formats::DelayedState> parse_delayed_states(const Recipe& recipe, std::string_view text) {
  return io::read_json_list(text, "[delayed scaling]", [&recipe](const io::JsonList& all) {
    std::vector<formats::DelayedState> states;
    for_delayed(recipe, [&](std::size_t, std::size_t, const CastRule& rule) {
      if (states.size() == all.size()) throw Error("expected more operands: the state is of another recipe");
      states.push_back(read_state(all.object(states.size()), rule));
    });
    if (states.size() != all.size()) throw Error("expected fewer operands: the state is of another recipe");
    return states;
  });
}

}  // namespace gnmr::recipes
