// SPDX-License-Identifier: Apache-2.0
#include "gnmr/train/batch_numbers.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "gnmr/kernels/norms.h"

namespace gnmr::train {
namespace {

constexpr double kClipEpsilon = 1e-6;  // as in torch's clip_grad_norm_

}  // namespace

Update update_of(std::span<const double> squares, double largest_norm) {
  Update update{.grad_norm = std::sqrt(std::accumulate(squares.begin(), squares.end(), 0.0))};
  update.applied = std::isfinite(update.grad_norm);
  if (largest_norm > 0 && update.applied) {
    update.clip = std::min(1.0, largest_norm / (update.grad_norm + kClipEpsilon));
  }
  update.applied = update.applied && update.grad_norm * update.clip < kernels::kLargestNorm;
  return update;
}

}  // namespace gnmr::train
