// SPDX-License-Identifier: Apache-2.0
#include "gnmr/models/llama.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "gnmr/core/error.h"
#include "gnmr/models/model_files.h"

namespace gnmr::models {
namespace {

// Holds the blocks under their numbers.
class LayersImpl : public torch::nn::Module {
 public:
  explicit LayersImpl(const std::vector<LlamaBlock>& blocks) {
    for (std::size_t i = 0; i < blocks.size(); ++i) register_module(std::to_string(i), blocks[i]);
  }
};

const LlamaConfig& validated(const LlamaConfig& config) {
  validate(config);
  return config;
}

std::vector<LlamaBlock> make_blocks(const LlamaConfig& config) {
  std::vector<LlamaBlock> blocks;
  for (std::int64_t i = 0; i < config.layers; ++i) blocks.emplace_back(config);
  return blocks;
}

// A module's list of parameters is open to its heirs only, and a parameter cannot be registered twice.
class ParametersOf : private torch::nn::Module {
 public:
  static torch::OrderedDict<std::string, at::Tensor>& get(torch::nn::Module& module) {
    return module.*&ParametersOf::parameters_;
  }
};

void tie_weight(nn::SwitchableLinearImpl& linear, const at::Tensor& weight) {
  ParametersOf::get(linear).erase("weight");
  linear.weight = weight;
}

}  // namespace

LlamaImpl::LlamaImpl(const LlamaConfig& config)
    : embed(validated(config).vocabulary, config.hidden),
      layers(make_blocks(config)),
      norm(config.hidden, config.rms_eps),
      head(config.hidden, config.vocabulary),
      config_(config) {
  if (config.tied_head) tie_weight(*head, embed->weight);
  register_module("embed", embed);
  register_module("layers", std::make_shared<LayersImpl>(layers));
  register_module("norm", norm);
  register_module("head", head);
}

at::Tensor LlamaImpl::forward(const at::Tensor& tokens) {
  check_tokens(tokens);
  const RotaryTable table = table_for(tokens);
  at::Tensor hidden = embed->forward(tokens);
  const bool recompute = recompute_ && at::GradMode::is_enabled();
  if (graphs_ != nullptr) graphs_->begin_pass(hidden.device());
  for (std::size_t i = 0; i < layers.size(); ++i) {
    LlamaBlock& block = layers[i];
    if (graphs_ != nullptr) {
      hidden = graphs_->forward(i, block, hidden, table, recompute);
    } else {
      hidden = recompute ? forward_with_recompute(block, hidden, table) : block->forward(hidden, table);
    }
  }
  return head->forward(norm->forward(hidden));
}

at::Tensor LlamaImpl::loss(const at::Tensor& tokens, const at::Tensor& targets) {
  if (targets.sizes() != tokens.sizes() || targets.scalar_type() != at::kLong) {
    throw Error("[model] targets: expected int64 of the tokens' shape, " + c10::str(tokens.sizes()) + ", got " +
                c10::str(targets.scalar_type(), " of ", targets.sizes()));
  }
  const at::Tensor logits = forward(tokens).flatten(0, 1).to(at::kFloat);
  return at::cross_entropy_loss(logits, targets.flatten(), {}, at::Reduction::Mean, kIgnoredTarget);
}

void LlamaImpl::assign(const TensorFile& weights, const std::string& place) { assign_weights(*this, weights, place); }

io::FolderSums LlamaImpl::save_to(const std::string& folder) const { return save_model(*this, folder); }

void LlamaImpl::set_graphs(bool graphs) {
  if (graphs == (graphs_ != nullptr)) return;
  graphs_ = graphs ? std::make_shared<BlockGraphs>(layers.size()) : nullptr;
}

void LlamaImpl::add_outliers(double factor) {
  constexpr std::int64_t kEvery = 32;
  const at::NoGradGuard no_gradients;
  for (const LlamaBlock& block : layers) {
    for (std::int64_t channel = kEvery / 2; channel < config_.hidden; channel += kEvery) {
      block->norm1->weight.select(0, channel).mul_(factor);
      block->norm2->weight.select(0, channel).mul_(factor);
      for (const nn::SwitchableLinear& linear : {block->q, block->k, block->v, block->gate, block->up}) {
        linear->weight.select(1, channel).div_(factor);
      }
    }
  }
}

void LlamaImpl::initialise(std::uint64_t seed) {
  const at::NoGradGuard no_gradients;
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  const auto fill = [&](const at::Tensor& weight, double deviation) {
    // Drawn on the CPU in float32 whatever the model's device and type: one seed, one model.
    weight.copy_(at::empty(weight.sizes(), at::TensorOptions().dtype(at::kFloat)).normal_(0.0, deviation, generator));
  };
  const auto fill_linear = [&](const nn::SwitchableLinear& linear, double deviation) {
    fill(linear->weight, deviation);
    if (linear->bias.defined()) linear->bias.zero_();
  };
  const double usual = config_.initializer_range;
  const double into_residual = usual / std::sqrt(2.0 * static_cast<double>(config_.layers));
  fill(embed->weight, usual);
  for (const LlamaBlock& block : layers) {
    block->norm1->weight.fill_(1);
    fill_linear(block->q, usual);
    fill_linear(block->k, usual);
    fill_linear(block->v, usual);
    fill_linear(block->o, into_residual);
    block->norm2->weight.fill_(1);
    fill_linear(block->gate, usual);
    fill_linear(block->up, usual);
    fill_linear(block->down, into_residual);
  }
  norm->weight.fill_(1);
  if (!config_.tied_head) fill(head->weight, usual);
}

void LlamaImpl::check_tokens(const at::Tensor& tokens) const {
  if (tokens.dim() != 2 || tokens.scalar_type() != at::kLong || tokens.numel() == 0) {
    throw Error("[model] tokens: expected int64 of [batch, positions], got " +
                c10::str(tokens.scalar_type(), " of ", tokens.sizes()));
  }
  if (tokens.size(1) > config_.max_positions) {
    throw Error("[model] tokens: expected at most " + std::to_string(config_.max_positions) + " positions, got " +
                std::to_string(tokens.size(1)));
  }
}

RotaryTable LlamaImpl::table_for(const at::Tensor& tokens) {
  const std::int64_t positions = tokens.size(1);
  const std::int64_t ready = table_.cosine.defined() ? table_.cosine.size(0) : 0;
  if (positions > ready || table_.cosine.device() != tokens.device()) {
    const c10::InferenceMode outlives_inference(false);
    const RotaryTable made = make_rotary_table(std::max(positions, ready), config_.head_dim, config_.rope_theta);
    table_ = {made.cosine.to(tokens.device()), made.sine.to(tokens.device())};
  }
  return {table_.cosine.narrow(0, 0, positions), table_.sine.narrow(0, 0, positions)};
}

}  // namespace gnmr::models
