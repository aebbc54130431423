// SPDX-License-Identifier: Apache-2.0
#include "gnmr/models/llama_block.h"

#include <ATen/ATen.h>

#include <utility>

#include "gnmr/torch/shared_input.h"

namespace gnmr::models {

EmbeddingImpl::EmbeddingImpl(std::int64_t vocabulary, std::int64_t hidden)
    : weight(register_parameter("weight", at::empty({vocabulary, hidden}))) {}

at::Tensor EmbeddingImpl::forward(const at::Tensor& tokens) { return at::embedding(weight, tokens); }

RmsNormImpl::RmsNormImpl(std::int64_t width, double eps)
    : weight(register_parameter("weight", at::ones({width}))), eps_(eps) {}

at::Tensor RmsNormImpl::forward(const at::Tensor& input) { return rms_norm(input, weight, eps_); }

std::pair<at::Tensor, at::Tensor> RmsNormImpl::forward(const at::Tensor& input, const at::Tensor& addend) {
  return add_rms_norm(input, addend, weight, eps_);
}

LlamaBlockImpl::LlamaBlockImpl(const LlamaConfig& config)
    : norm1(config.hidden, config.rms_eps),
      q(config.hidden, config.heads * config.head_dim, config.attention_bias),
      k(config.hidden, config.key_value_heads * config.head_dim, config.attention_bias),
      v(config.hidden, config.key_value_heads * config.head_dim, config.attention_bias),
      o(config.heads * config.head_dim, config.hidden, config.attention_bias),
      norm2(config.hidden, config.rms_eps),
      gate(config.hidden, config.intermediate, config.mlp_bias),
      up(config.hidden, config.intermediate, config.mlp_bias),
      down(config.intermediate, config.hidden, config.mlp_bias),
      heads_(config.heads),
      key_value_heads_(config.key_value_heads),
      head_dim_(config.head_dim) {
  register_module("norm1", norm1);
  register_module("q", q);
  register_module("k", k);
  register_module("v", v);
  register_module("o", o);
  register_module("norm2", norm2);
  register_module("gate", gate);
  register_module("up", up);
  register_module("down", down);
}

at::Tensor LlamaBlockImpl::forward(const at::Tensor& input, const RotaryTable& table) {
  const at::Tensor attended = o->forward(attend(norm1->forward(input), table));
  const auto [middle, normed] = norm2->forward(input, attended);
  return middle + down->forward(expand(normed));
}

std::array<at::Tensor, 3> LlamaBlockImpl::project(const at::Tensor& input, const RotaryTable& table) {
  const nn::SharedInput shared(input);
  // Heads stay beside each other in memory; attention takes them by stride.
  const at::Tensor queries = rotate_positions(q->forward(input), table, heads_);
  const at::Tensor keys = rotate_positions(k->forward(input), table, key_value_heads_);
  const at::Tensor values = v->forward(input).view({input.size(0), input.size(1), key_value_heads_, head_dim_});
  return {queries.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2)};
}

at::Tensor LlamaBlockImpl::expand(const at::Tensor& input) {
  const nn::SharedInput shared(input);
  return swiglu(gate->forward(input), up->forward(input));
}

at::Tensor LlamaBlockImpl::attend(const at::Tensor& input, const RotaryTable& table) {
  const std::int64_t batch = input.size(0);
  const std::int64_t positions = input.size(1);
  const auto [queries, keys, values] = project(input, table);
  const at::Tensor mixed = at::scaled_dot_product_attention(queries, keys, values, {}, 0.0, /*is_causal=*/true,
                                                            std::nullopt, /*enable_gqa=*/heads_ != key_value_heads_);
  return mixed.transpose(1, 2).reshape({batch, positions, heads_ * head_dim_});
}

}  // namespace gnmr::models
