// SPDX-License-Identifier: Apache-2.0
// A LLaMA-architecture language model of switchable linear layers.
//
// Modules in forward order: embed; layers.N.{norm1, q, k, v, o, norm2, gate, up, down}; norm; head. With a tied head,
// `head` multiplies by the embedding's weight and registers none of its own.
//
// Goals: the logits, loss and gradients of transformers' LlamaForCausalLM within rounding; on the CPU no slower than
// the same model in plain PyTorch. Non-goals: generation with a cache, padding masks, dropout.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "gnmr/models/block_graphs.h"
#include "gnmr/models/fused_ops.h"
#include "gnmr/models/language_model.h"
#include "gnmr/models/llama_block.h"
#include "gnmr/models/llama_config.h"

namespace gnmr::models {

/// Targets of this value do not count in the loss.
inline constexpr std::int64_t kIgnoredTarget = -100;

/// The model. One thread calls it at a time. Weights are what `initialise` or `load_weights` makes them.
class LlamaImpl : public LanguageModel {
 public:
  explicit LlamaImpl(const LlamaConfig& config);

  /// `tokens` is [batch, positions] of int64; the result [batch, positions, vocabulary].
  at::Tensor forward(const at::Tensor& tokens);

  at::Tensor loss(const at::Tensor& tokens, const at::Tensor& targets) override;
  std::int64_t parameter_count() const override { return models::parameter_count(config_); }
  std::string config_text() const override { return config_json(config_); }
  void assign(const TensorFile& weights, const std::string& place) override;
  io::FolderSums save_to(const std::string& folder) const override;
  std::string graph_failure() const override { return graph_statistics().last_failure; }

  /// Normal numbers of deviation `initializer_range`, divided by sqrt(2 * layers) in `o` and `down`; norms 1, biases 0.
  /// The same on every number of threads.
  void initialise(std::uint64_t seed);

  /// Makes one channel in 32 of what enters q, k, v, gate and up `factor` times as large, the weights behind it as much
  /// smaller: the model computes what it did, but quantization meets outliers as large models grow them.
  void add_outliers(double factor);

  /// Whether each block's activations are computed again in backward instead of being kept.
  void set_recompute(bool recompute) { recompute_ = recompute; }

  /// Whether blocks run as CUDA graphs where that can be (block_graphs.h has where, and what it costs); off at first.
  /// Where not, as on the CPU, nothing changes. Turning it off frees them.
  void set_graphs(bool graphs);

  /// What was captured and replayed since they were turned on.
  GraphStatistics graph_statistics() const { return graphs_ != nullptr ? graphs_->statistics() : GraphStatistics(); }

  const LlamaConfig& config() const { return config_; }

  Embedding embed;
  std::vector<LlamaBlock> layers;
  RmsNorm norm;
  nn::SwitchableLinear head;

 private:
  void check_tokens(const at::Tensor& tokens) const;
  RotaryTable table_for(const at::Tensor& tokens);

  LlamaConfig config_;
  RotaryTable table_;  // on the device of the last tokens, as long as the longest so far
  bool recompute_ = false;
  std::shared_ptr<BlockGraphs> graphs_;  // null: off
};
TORCH_MODULE(Llama);

}  // namespace gnmr::models
