// SPDX-License-Identifier: Apache-2.0
// The modules that a LLaMA-architecture model is made of: embedding, norm, block.
//
// Goals: names are short and children stand in forward order, so that a unit is called `layers.3.down`; what can be
// switched is a SwitchableLinear. Non-goals: the loop over blocks (llama.h), files (model_files.h).
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gnmr/models/fused_ops.h"
#include "gnmr/models/llama_config.h"
#include "gnmr/torch/switchable_linear.h"

namespace gnmr::models {

/// A row of `weight` [vocabulary, hidden] for each token.
class EmbeddingImpl : public torch::nn::Module {
 public:
  EmbeddingImpl(std::int64_t vocabulary, std::int64_t hidden);
  at::Tensor forward(const at::Tensor& tokens);

  at::Tensor weight;
};
TORCH_MODULE(Embedding);

/// Divides by the root mean square and multiplies by `weight`.
class RmsNormImpl : public torch::nn::Module {
 public:
  RmsNormImpl(std::int64_t width, double eps);
  at::Tensor forward(const at::Tensor& input);

  /// input + addend, and the norm of that.
  std::pair<at::Tensor, at::Tensor> forward(const at::Tensor& input, const at::Tensor& addend);

  at::Tensor weight;

 private:
  double eps_;
};
TORCH_MODULE(RmsNorm);

/// Causal attention and a gated feed-forward layer, each behind a norm and added to what came in.
class LlamaBlockImpl : public torch::nn::Module {
 public:
  explicit LlamaBlockImpl(const LlamaConfig& config);

  /// `input` is [batch, positions, hidden]; the table has exactly the positions.
  at::Tensor forward(const at::Tensor& input, const RotaryTable& table);

  RmsNorm norm1;
  nn::SwitchableLinear q;
  nn::SwitchableLinear k;
  nn::SwitchableLinear v;
  nn::SwitchableLinear o;
  RmsNorm norm2;
  nn::SwitchableLinear gate;
  nn::SwitchableLinear up;
  nn::SwitchableLinear down;

 private:
  at::Tensor attend(const at::Tensor& input, const RotaryTable& table);

  /// Queries, keys and values, [batch, heads, positions, head_dim].
  std::array<at::Tensor, 3> project(const at::Tensor& input, const RotaryTable& table);

  /// What `down` takes.
  at::Tensor expand(const at::Tensor& input);

  std::int64_t heads_;
  std::int64_t key_value_heads_;
  std::int64_t head_dim_;
};
TORCH_MODULE(LlamaBlock);

/// Runs a block so that only its input is kept for backward, where it runs again. Gradients are the same bit for bit
/// as long as the block's switches do not change in between.
at::Tensor forward_with_recompute(LlamaBlock& block, const at::Tensor& input, const RotaryTable& table);

}  // namespace gnmr::models
