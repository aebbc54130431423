// SPDX-License-Identifier: Apache-2.0
// A linear layer whose three products can each run in low or in high precision.
//
//   forward           y  = x w^T + bias     [tokens, out]
//   input-gradient    dx = g w              [tokens, in]
//   weight-gradient   dw = g^T x            [out, in]
//
// Without a recipe it is a plain linear layer. With one, `LinearPaths` says before each step which products run low;
// nothing is reallocated, and no parameter, name or type changes.
//
// Goals: one autograd function for every recipe and switch; what the low path remembers goes on in recovery.
// Non-goals: deciding (gnmr/core), finding units (units.h), real low-precision kernels.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <memory>

#include "gnmr/torch/linear_paths.h"

namespace gnmr::nn {

/// The module; `weight` is [out, in], `bias` [out] or undefined.
class SwitchableLinearImpl : public torch::nn::Module {
 public:
  SwitchableLinearImpl(std::int64_t in_features, std::int64_t out_features, bool with_bias = false);

  /// `input` is [..., in]; the result is [..., out].
  at::Tensor forward(const at::Tensor& input);

  std::int64_t in_features() const { return in_features_; }
  std::int64_t out_features() const { return out_features_; }

  /// Its switch, what its low path remembers, and what was measured in this step.
  LinearPaths& paths() { return *paths_; }

  at::Tensor weight;
  at::Tensor bias;

 private:
  std::int64_t in_features_;
  std::int64_t out_features_;
  std::shared_ptr<LinearPaths> paths_;
  c10::intrusive_ptr<torch::CustomClassHolder> holder_;  // the same, for the autograd graph
};

TORCH_MODULE(SwitchableLinear);

}  // namespace gnmr::nn
