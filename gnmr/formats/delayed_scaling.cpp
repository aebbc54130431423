// SPDX-License-Identifier: Apache-2.0
#include "gnmr/formats/delayed_scaling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "gnmr/formats/group_scale.h"

namespace gnmr::formats {

void observe_amax(const DelayedScaling& options, float amax, DelayedState& state, const Refresh& refresh) {
  if (options.history_length == 0 || options.update_interval == 0) {
    throw std::invalid_argument("[observe_amax] expected a history length and an update interval of at least 1");
  }
  if (amax < 0) throw std::invalid_argument("[observe_amax] expected an amax of at least 0");
  std::vector<float>& history = state.amax_history;
  if (std::isfinite(amax)) {
    history.push_back(amax);
    if (history.size() > options.history_length) {
      history.erase(history.begin(), history.end() - static_cast<std::ptrdiff_t>(options.history_length));
    }
  }
  const bool due = state.observations % options.update_interval == 0;
  ++state.observations;
  if (state.refresh_debt > 0) --state.refresh_debt;
  if ((!due && !refresh.allows(state.refresh_debt)) || history.empty()) return;
  const float chosen =
      options.choice == AmaxChoice::newest ? history.back() : *std::max_element(history.begin(), history.end());
  if (!(chosen > 0)) return;
  const float scale = std::ldexp(float32_scale(options.format, chosen), options.margin);
  const float renewed = std::clamp(scale, kSmallestScale, std::numeric_limits<float>::max());
  if (!due) {
    if (!(renewed > refresh.factor * state.scale) && !(renewed < 0.5F * state.scale)) return;
    ++state.refreshes;
    state.refresh_debt += refresh.gap;
  }
  state.scale = renewed;
}

std::uint32_t debt_of_last_refresh(std::uint64_t observations, std::uint64_t refreshed_at) {
  constexpr std::uint32_t kGap = Refresh{}.gap;
  const std::uint64_t since = observations - refreshed_at;
  return refreshed_at == 0 || since >= kGap ? 0 : kGap - static_cast<std::uint32_t>(since);
}

bool would_refresh(const DelayedScaling& options, float amax, const DelayedState& state, const Refresh& refresh) {
  if (refresh.factor <= 0 || options.update_interval == 1 || amax < 0) return false;
  DelayedState after = state;
  observe_amax(options, amax, after, refresh);
  return after.refreshes != state.refreshes;
}

}  // namespace gnmr::formats
