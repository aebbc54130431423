// SPDX-License-Identifier: Apache-2.0
#include "gnmr/train/pass_numbers.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "gnmr/kernels/norms.h"

namespace gnmr::train {
namespace {

constexpr double kClipEpsilon = 1e-6;  // as in torch's clip_grad_norm_

}  // namespace

double GradientSquares::total() const {
  double sum = 0;
  for (const double square : parameters) sum += square;
  return sum;
}

PassResult read(PassNumbers numbers) {
  PassResult result = std::move(numbers.rest);
  if (numbers.pending != nullptr) {
    numbers.pending->complete(result);
  } else {
    result.loss = numbers.loss.item<double>();
  }
  return result;
}

Update update_of(const GradientSquares& squares, double largest_norm) {
  Update update{.grad_norm = std::sqrt(squares.total())};
  update.applied = std::isfinite(update.grad_norm);
  if (largest_norm > 0 && update.applied) {
    update.clip = std::min(1.0, largest_norm / (update.grad_norm + kClipEpsilon));
  }
  update.applied = update.applied && update.grad_norm * update.clip < kernels::kLargestNorm;
  return update;
}

}  // namespace gnmr::train
