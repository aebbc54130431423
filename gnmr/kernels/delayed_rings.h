// SPDX-License-Identifier: Apache-2.0
// How the states of delayed scaling lie on the device: histories as rings, one after the other.
//
// Goals: plain arrays that are copied as they are, and the way from states and back. Non-goals: observing.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gnmr/kernels/delayed_scales.h"

namespace gnmr::kernels {

/// A rule as kernels read it.
struct RingRule {
  std::uint64_t first;  // slot of the ring, among those of all tensors
  std::uint32_t length;
  std::uint32_t interval;
  std::uint32_t amax;    // index in `amaxes`
  std::uint32_t totals;  // index in `totals`
  std::int32_t margin;
  float largest;  // number of the format
  bool takes_newest;
};

/// The state of a tensor, besides its ring. The ring's amaxes are its first `size` slots; once it is full, `next`
/// is the oldest.
struct RingState {
  std::uint64_t observations;
  std::uint32_t size;
  std::uint32_t next;  // slot that is written next
  float scale;
  std::uint32_t debt;  // of refreshes
  std::uint64_t refreshes;
};

/// The rules of tensors.
std::vector<RingRule> ring_rules(std::span<const DelayedTensor> tensors);

/// States with their rings.
struct Rings {
  std::vector<RingState> states;
  std::vector<float> slots;
};

/// Rings of states; an `Error` as `DelayedScales::load`.
Rings rings_of(std::span<const RingRule> rules, std::span<const formats::DelayedState> states);

/// The states of rings.
std::vector<formats::DelayedState> states_of(std::span<const RingRule> rules, const Rings& rings);

}  // namespace gnmr::kernels
