// SPDX-License-Identifier: Apache-2.0
// What the ranks of a run find out together.
//
// Goals: every rank gets the same answer, so that all of them decide alike. Non-goals: gradients (batch_runner.h).
// All ranks call these functions in the same order.
#pragma once

#include <cstdint>
#include <optional>

#include "gnmr/torch/collective.h"

namespace gnmr::train {

/// The largest value of any rank.
std::int64_t largest_of_ranks(nn::Collective& ranks, std::int64_t value);

/// Whether it is so on any rank.
inline bool any_rank(nn::Collective& ranks, bool here) { return largest_of_ranks(ranks, here ? 1 : 0) != 0; }

/// The rank whose own gradient changed most from one run of a batch to the other, by its norms; none where there is
/// only one.
std::optional<std::int64_t> most_changed_rank(nn::Collective& ranks, double norm_before, double norm);

}  // namespace gnmr::train
