// SPDX-License-Identifier: Apache-2.0
// A linear layer whose three GEMMs can each run in low or in high precision.
//
//   forward           y  = x w^T + bias     [tokens, out]
//   input-gradient    dx = g w              [tokens, in]
//   weight-gradient   dw = g^T x            [out, in]
//
// Without a recipe it is a plain linear layer. With one, `LinearPaths` says before each step which GEMMs run low;
// nothing is reallocated, and no parameter, name or type changes.
//
// Goals: one autograd function for every recipe and switch, thin around gnmr/low. Non-goals: what the paths compute
// (gnmr/low/linear.h), deciding (gnmr/core), finding units (units.h).
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <memory>

#include "gnmr/low/linear_paths.h"
#include "gnmr/torch/low_path_hook.h"

namespace gnmr::nn {

using low::CastRule;
using low::Comparison;
using low::ErrorSums;
using low::kOperandCount;
using low::kProductCount;
using low::LinearPaths;
using low::Operand;
using low::Product;
using low::ProductMeasurement;
using low::Recipe;
using low::StepClock;

/// The module; `weight` is [out, in], `bias` [out] or undefined.
class SwitchableLinearImpl : public torch::nn::Module {
 public:
  SwitchableLinearImpl(std::int64_t in_features, std::int64_t out_features, bool with_bias = false);

  /// `input` is [..., in]; the result is [..., out].
  at::Tensor forward(const at::Tensor& input);

  std::int64_t in_features() const { return in_features_; }
  std::int64_t out_features() const { return out_features_; }

  /// Its switch, its low path's state, and what was measured in this step.
  LinearPaths& paths() { return *paths_; }

  at::Tensor weight;
  at::Tensor bias;

 protected:
  /// Of a layer that has parameters of other shapes.
  SwitchableLinearImpl(std::int64_t in_features, std::int64_t out_features, at::IntArrayRef weight_shape,
                       at::IntArrayRef bias_shape);

  /// The paths, for the autograd graph.
  const c10::intrusive_ptr<torch::CustomClassHolder>& holder() const { return holder_; }

 private:
  std::int64_t in_features_;
  std::int64_t out_features_;
  std::shared_ptr<LinearPaths> paths_;
  c10::intrusive_ptr<torch::CustomClassHolder> holder_;  // the same (paths_holder.h)
};

TORCH_MODULE(SwitchableLinear);

}  // namespace gnmr::nn
