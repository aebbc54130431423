// SPDX-License-Identifier: Apache-2.0
#include "gnmr/low/patrol.h"

#include <algorithm>

#include "gnmr/low/row_probe.h"

namespace gnmr::low {
namespace {

// What a GPU multiplies and adds in FP8 while it reads a byte: 680e12 by 4e12 a second on an H200.
constexpr double kMultiplyAddsAByte = 170;

}  // namespace

double patrol_cost(const PatrolledLayer& layer) {
  if (!layer.on_device) return probe_multiply_adds(layer.tokens, layer.in_features, layer.out_features);
  // On a GPU a patrol is bound by the memory: what else could have been computed meanwhile is its cost.
  return kMultiplyAddsAByte * probe_bytes(layer.tokens, layer.in_features, layer.out_features, layer.element_bytes);
}

PatrolRounds patrol_rounds(std::span<const double> costs, double all, double share) {
  PatrolRounds rounds;
  if (share <= 0 || costs.empty()) return rounds;
  rounds.count = 1;
  double round_cost = 0;
  for (const double cost : costs) {
    if (share < 1 && round_cost > 0 && round_cost + cost > share * all) {
      ++rounds.count;
      round_cost = 0;
    }
    round_cost += cost;
    rounds.share = std::max(rounds.share, round_cost / all);
    rounds.round_of.push_back(rounds.count - 1);
  }
  return rounds;
}

}  // namespace gnmr::low
