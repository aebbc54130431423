// SPDX-License-Identifier: Apache-2.0
// Which layers a patrol measures together, and what that costs.
//
// Goals: one schedule for every front end; after the first steps layers take turns, so that no step pays for more than
// a share of its multiply-adds. Non-goals: measuring (error_sums.h), counting steps.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace gnmr::low {

/// A micro-batch of one layer.
struct PatrolledLayer {
  std::int64_t tokens = 0;
  std::int64_t in_features = 0;
  std::int64_t out_features = 0;
  double element_bytes = 0;  // of its operands
  bool on_device = false;    // CUDA
};

/// What a patrol of it costs, as multiply-adds that could have been made meanwhile.
double patrol_cost(const PatrolledLayer& layer);

/// Which layers are measured in the same steps.
struct PatrolRounds {
  std::vector<std::uint32_t> round_of = {};  // per layer; empty: no patrol
  std::uint32_t count = 0;
  double share = 0;  // of a step's multiply-adds, the dearest round's
};

/// Steps at the beginning of a run in which every layer is measured in every step, whatever the share: standing
/// recovery needs twenty errors of a unit, and should not wait for its turns.
inline constexpr std::int64_t kSurveySteps = 40;

/// Whether the layers of a round are measured in a step (from 1).
constexpr bool is_due(std::uint32_t round, std::uint32_t rounds, std::int64_t step) {
  return step <= kSurveySteps || static_cast<std::uint64_t>(step) % rounds == round;
}

/// Layers of these costs in turn, in steps of `all` multiply-adds: at most `share` of them per round, but at least one
/// layer; 0: no patrol, 1: all layers in each step.
PatrolRounds patrol_rounds(std::span<const double> costs, double all, double share);

}  // namespace gnmr::low
