// SPDX-License-Identifier: Apache-2.0
// Delayed scaling: the scale of a tensor comes from the amax of earlier ones.
//
// Goals: plain values that can be saved and loaded as they are, and one function that advances them. What is quantized
// with the scale is the caller's: `fake_quantise(cast, given_scale(state.scale), ...)`, then `observe_amax`. A tensor
// that is not quantized in a step should be observed all the same, else the scale is out of date when it is. Non-goals:
// threads, sums over processes (observe the largest amax of all).
#pragma once

#include <cstdint>
#include <vector>

#include "gnmr/formats/element.h"

namespace gnmr::formats {

/// Which amax of the history makes the scale.
enum class AmaxChoice : std::uint8_t { largest, newest };

/// How a delayed scale follows its history.
struct DelayedScaling {
  Format format = Format::e4m3;
  std::uint32_t history_length = 16;
  std::uint32_t update_interval = 1;  // observations from one change of the scale to the next
  AmaxChoice choice = AmaxChoice::largest;
  int margin = 0;  // the scale is 2^margin times as large as it need be
};

/// When a scale is renewed before its interval is over, because the history no longer fits it. The rule stays.
struct Refresh {
  float factor = 0;  // if the scale that the rule would make now is more than this many times as large; 0: never
  // ... or less than half as large. Of each scale `burst` at once, and then one in `gap` observations:
  std::uint32_t burst = 4;
  std::uint32_t gap = 10;

  /// Whether a scale with this debt may be refreshed.
  constexpr bool allows(std::uint32_t debt) const { return factor > 0 && debt + gap <= burst * gap; }
};

/// No debt of a state is larger.
inline constexpr std::uint32_t kMostRefreshDebt = Refresh{}.burst * Refresh{}.gap;

/// The state of delayed scaling for one tensor.
struct DelayedState {
  std::vector<float> amax_history;  // oldest first, at most `history_length`
  std::uint64_t observations = 0;
  float scale = 1;
  std::uint64_t refreshes = 0;     // so far: renewals before the interval was over
  std::uint32_t refresh_debt = 0;  // a new scale in place of one that no longer fits adds a gap, an observation takes 1
};

/// The debt in a state of an earlier version, which kept `observations` as they were after its last refresh.
std::uint32_t debt_of_last_refresh(std::uint64_t observations, std::uint64_t refreshed_at);

/// Takes in the amax of a tensor and, after the first and then after every `update_interval` observations, renews the
/// scale; between these if `refresh` says so. An amax that is not finite is left out; a history of zeros leaves the
/// scale as it is.
void observe_amax(const DelayedScaling& options, float amax, DelayedState& state, const Refresh& refresh = {});

/// Whether it would renew a scale that no longer fits, early or not, within the rate of `refresh`.
bool renewal_answers(const DelayedScaling& options, float amax, const DelayedState& state, const Refresh& refresh);

}  // namespace gnmr::formats
