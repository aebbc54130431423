// SPDX-License-Identifier: Apache-2.0
#include "gnmr/train/rank_agreement.h"

#include <ATen/ops/tensor.h>

#include <cmath>
#include <vector>

namespace gnmr::train {

std::int64_t largest_of_ranks(nn::Collective& ranks, std::int64_t value) {
  if (ranks.size() == 1) return value;
  at::Tensor shared = at::tensor({value}, at::kLong);
  ranks.largest(shared);
  return shared.item<std::int64_t>();
}

std::optional<std::int64_t> most_changed_rank(nn::Collective& ranks, double norm_before, double norm) {
  if (ranks.size() == 1) return {};
  std::vector<double> changes(static_cast<std::size_t>(ranks.size()), 0.0);
  const double change = std::abs(norm_before - norm) / norm;
  changes[static_cast<std::size_t>(ranks.rank())] = std::isnan(change) ? HUGE_VAL : change;
  at::Tensor all = at::tensor(changes, at::kDouble);
  ranks.sum(all);
  return all.argmax().item<std::int64_t>();
}

}  // namespace gnmr::train
