// SPDX-License-Identifier: Apache-2.0
#include "gnmr/formats/delayed_scaling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "gnmr/formats/group_scale.h"

namespace gnmr::formats {

namespace {

void check_delayed_scaling(const DelayedScaling& options) {
  if (options.history_length > 0 && options.update_interval > 0) return;
  throw std::invalid_argument("[observe_amax] expected a history length and an update interval of at least 1");
}

/// What an observation does to a scale.
struct Renewal {
  float scale = 0;  // 0: it stays
  bool is_answer = false;
};

/// The largest or newest of a history that takes in this amax; 0 where it is empty.
float chosen_amax(const DelayedScaling& options, float amax, const std::vector<float>& history) {
  const bool enters = std::isfinite(amax);
  if (options.choice == AmaxChoice::newest && enters) return amax;
  if (history.empty()) return enters ? amax : 0;
  if (options.choice == AmaxChoice::newest) return history.back();
  const std::size_t kept = std::min<std::size_t>(history.size(), options.history_length - (enters ? 1 : 0));
  float largest = enters ? amax : 0;
  for (std::size_t index = history.size() - kept; index < history.size(); ++index) {
    largest = std::max(largest, history[index]);
  }
  return largest;
}

std::uint32_t paid_back(std::uint32_t debt) { return debt > 0 ? debt - 1 : 0; }

Renewal renewal(const DelayedScaling& options, float amax, const DelayedState& state, const Refresh& refresh) {
  const bool is_due = state.observations % options.update_interval == 0;
  const bool may_refresh = state.observations > 0 && refresh.allows(paid_back(state.refresh_debt));
  if (!is_due && !may_refresh) return {};
  const float chosen = chosen_amax(options, amax, state.amax_history);
  if (!(chosen > 0)) return {};
  const float scale = std::ldexp(float32_scale(options.format, chosen), options.margin);
  const float fresh = std::clamp(scale, kSmallestScale, std::numeric_limits<float>::max());
  const bool misfits = fresh > refresh.factor * state.scale || fresh < 0.5F * state.scale;
  if (!is_due && !misfits) return {};
  return {.scale = fresh, .is_answer = may_refresh && misfits};
}

}  // namespace

void observe_amax(const DelayedScaling& options, float amax, DelayedState& state, const Refresh& refresh) {
  check_delayed_scaling(options);
  if (amax < 0) throw std::invalid_argument("[observe_amax] expected an amax of at least 0");
  const Renewal now = renewal(options, amax, state, refresh);
  std::vector<float>& history = state.amax_history;
  if (std::isfinite(amax)) {
    history.push_back(amax);
    if (history.size() > options.history_length) {
      history.erase(history.begin(), history.end() - static_cast<std::ptrdiff_t>(options.history_length));
    }
  }
  state.refresh_debt = paid_back(state.refresh_debt);
  if (now.is_answer) {
    state.refresh_debt += refresh.gap;
    if (state.observations % options.update_interval != 0) ++state.refreshes;
  }
  ++state.observations;
  if (now.scale > 0) state.scale = now.scale;
}

std::uint32_t debt_of_last_refresh(std::uint64_t observations, std::uint64_t refreshed_at) {
  constexpr std::uint32_t kGap = Refresh{}.gap;
  const std::uint64_t since = observations - refreshed_at;
  return refreshed_at == 0 || since >= kGap ? 0 : kGap - static_cast<std::uint32_t>(since);
}

bool renewal_answers(const DelayedScaling& options, float amax, const DelayedState& state, const Refresh& refresh) {
  check_delayed_scaling(options);
  return amax >= 0 && renewal(options, amax, state, refresh).is_answer;
}

}  // namespace gnmr::formats
