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
  const bool may_refresh =
      refresh.factor > 0 && (state.refreshed_at == 0 || state.observations - state.refreshed_at >= refresh.gap);
  if ((!due && !may_refresh) || history.empty()) return;
  const float chosen =
      options.choice == AmaxChoice::newest ? history.back() : *std::max_element(history.begin(), history.end());
  if (!(chosen > 0)) return;
  const float scale = std::ldexp(float32_scale(options.format, chosen), options.margin);
  const float renewed = std::clamp(scale, kSmallestScale, std::numeric_limits<float>::max());
  if (!due) {
    if (!(renewed > refresh.factor * state.scale) && !(renewed < 0.5F * state.scale)) return;
    ++state.refreshes;
    state.refreshed_at = state.observations;
  }
  state.scale = renewed;
}

bool would_refresh(const DelayedScaling& options, float amax, const DelayedState& state, const Refresh& refresh) {
  if (refresh.factor <= 0 || options.update_interval == 1 || amax < 0) return false;
  DelayedState after = state;
  observe_amax(options, amax, after, refresh);
  return after.refreshes != state.refreshes;
}

}  // namespace gnmr::formats
