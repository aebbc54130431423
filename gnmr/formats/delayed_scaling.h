// SPDX-License-Identifier: Apache-2.0
// Delayed scaling: the scale of a tensor comes from the amax of earlier ones.
//
// Goals: plain values that can be saved and loaded as they are, and one function that advances them. What is cast with
// the scale is the caller's: `fake_quantise(cast, given_scale(state.scale), ...)`, then `observe_amax`. A tensor that
// is not cast in a step should be observed all the same, else the scale is out of date when it is. Non-goals: threads,
// sums over processes (observe the largest amax of all).
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

/// All that delayed scaling remembers of one tensor.
struct DelayedState {
  std::vector<float> amax_history;  // oldest first, at most `history_length`
  std::uint64_t observations = 0;
  float scale = 1;
};

/// Takes in the amax of a tensor and, after the first and then after every `update_interval` observations, renews the
/// scale. An amax that is not finite is not remembered; a history of zeros leaves the scale as it is.
void observe_amax(const DelayedScaling& options, float amax, DelayedState& state);

}  // namespace gnmr::formats
