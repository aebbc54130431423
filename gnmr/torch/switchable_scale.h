// SPDX-License-Identifier: Apache-2.0
// What a norm multiplies its result with: a weight and a bias for each channel, switchable like a linear layer.
//
//   forward           y  = x * weight + bias     [tokens, channels]
//   input gradient    dx = g * weight            [tokens, channels]
//   weight gradient   dw = sum over tokens of g * x
//
// It is a linear layer whose matrix is diagonal, so its unit has the three places, errors and costs of one. Recipes
// apply as they do there; the weight is quantized along its channels, once for forward and dgrad.
//
// Goals: a norm that is quantized is measured, tried and recovered as everything else is. Non-goals: saved activations
// in 8 bits; a recovery below high precision (recovers_to): it recovers to high.
#pragma once

#include "gnmr/torch/switchable_linear.h"

namespace gnmr::nn {

/// The module; `weight` and `bias` are [channels]. Both are as `reset` makes them until something else is loaded.
class SwitchableScaleImpl : public SwitchableLinearImpl {
 public:
  explicit SwitchableScaleImpl(std::int64_t channels);

  /// Multiplies by 1 and adds 0.
  void reset();

  /// `input` is [..., channels]; so is the result.
  at::Tensor forward(const at::Tensor& input);
};

TORCH_MODULE(SwitchableScale);

}  // namespace gnmr::nn
