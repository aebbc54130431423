// SPDX-License-Identifier: Apache-2.0
#include "gnmr/models/llama.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "gnmr/core/error.h"
#include "io/temporary_folder.h"

namespace gnmr::models {
namespace {

using test::error_of;

LlamaConfig small_llama() {
  LlamaConfig config;
  config.vocabulary = 29;
  config.hidden = 24;
  config.intermediate = 40;
  config.layers = 2;
  config.heads = 4;
  config.key_value_heads = 2;
  config.head_dim = 6;
  config.max_positions = 32;
  return config;
}

at::Tensor random_tokens(std::int64_t batch, std::int64_t positions) {
  at::manual_seed(5);
  return at::randint(29, {batch, positions}, at::TensorOptions().dtype(at::kLong));
}

std::vector<at::Tensor> gradients(Llama& model, const at::Tensor& tokens) {
  model->zero_grad();
  model->loss(tokens, tokens.roll(-1, 1)).backward();
  std::vector<at::Tensor> result;
  for (const at::Tensor& parameter : model->parameters()) {
    result.push_back(parameter.grad().defined() ? parameter.grad().clone() : at::Tensor());
  }
  return result;
}

void expect_equal_tensors(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].defined(), b[i].defined()) << i;
    if (a[i].defined()) {
      EXPECT_TRUE(at::equal(a[i], b[i])) << i;
    }
  }
}

TEST(Llama, ModulesAreNamedInForwardOrder) {
  LlamaConfig config = small_llama();
  config.layers = 1;
  config.attention_bias = true;
  std::vector<std::string> names;
  for (const auto& parameter : Llama(config)->named_parameters()) names.push_back(parameter.key());
  const std::vector<std::string> expected{
      "embed.weight",       "layers.0.norm1.weight", "layers.0.q.weight",     "layers.0.q.bias",
      "layers.0.k.weight",  "layers.0.k.bias",       "layers.0.v.weight",     "layers.0.v.bias",
      "layers.0.o.weight",  "layers.0.o.bias",       "layers.0.norm2.weight", "layers.0.gate.weight",
      "layers.0.up.weight", "layers.0.down.weight",  "norm.weight",           "head.weight"};
  EXPECT_EQ(names, expected);
}

TEST(Llama, CountsItsParametersRight) {
  for (const bool tied : {false, true}) {
    LlamaConfig config = small_llama();
    config.tied_head = tied;
    config.attention_bias = config.mlp_bias = tied;
    std::int64_t count = 0;
    for (const at::Tensor& parameter : Llama(config)->parameters()) count += parameter.numel();
    EXPECT_EQ(count, parameter_count(config));
  }
}

TEST(Llama, ATiedHeadIsTheEmbedding) {
  LlamaConfig config = small_llama();
  config.tied_head = true;
  Llama model(config);
  model->initialise(1);
  EXPECT_TRUE(model->head->weight.is_same(model->embed->weight));
  EXPECT_EQ(model->named_parameters().find("head.weight"), nullptr);
  model->to(at::kDouble);
  EXPECT_TRUE(model->head->weight.is_same(model->embed->weight));
  EXPECT_EQ(model->forward(random_tokens(1, 3)).scalar_type(), at::kDouble);
}

TEST(Llama, TheSeedAloneMakesTheWeights) {
  Llama a(small_llama());
  Llama b(small_llama());
  Llama other(small_llama());
  const int before = at::get_num_threads();
  at::manual_seed(1);
  at::set_num_threads(1);
  a->initialise(7);
  at::manual_seed(2);
  at::set_num_threads(2);
  b->initialise(7);
  other->initialise(8);
  at::set_num_threads(before);
  expect_equal_tensors(a->parameters(), b->parameters());
  EXPECT_FALSE(at::equal(a->embed->weight, other->embed->weight));
  EXPECT_FALSE(at::equal(a->layers[0]->q->weight, a->layers[1]->q->weight));
}

TEST(Llama, BeginsWithTheLossOfAGuess) {
  Llama model(small_llama());
  model->initialise(1);
  const at::Tensor tokens = random_tokens(4, 20);
  EXPECT_NEAR(model->loss(tokens, tokens.roll(-1, 1)).item<double>(), std::log(29.0), 0.05);
}

TEST(Llama, LooksAtNothingThatComesLater) {
  Llama model(small_llama());
  model->initialise(1);
  const at::NoGradGuard no_gradients;
  const at::Tensor tokens = random_tokens(2, 16);
  at::Tensor changed = tokens.clone();
  changed.slice(1, 9).fill_(3);
  const at::Tensor a = model->forward(tokens);
  const at::Tensor b = model->forward(changed);
  EXPECT_TRUE(at::allclose(a.slice(1, 0, 9), b.slice(1, 0, 9), 1e-5, 1e-6));
  EXPECT_FALSE(at::allclose(a.slice(1, 9), b.slice(1, 9), 1e-3, 1e-3));
  // The table of angles grows and is cut, and means the same.
  EXPECT_TRUE(at::allclose(model->forward(tokens.slice(1, 0, 5)), a.slice(1, 0, 5), 1e-5, 1e-6));
}

TEST(Llama, IgnoredTargetsDoNotCount) {
  Llama model(small_llama());
  model->initialise(1);
  const at::Tensor tokens = random_tokens(2, 8);
  at::Tensor targets = tokens.roll(-1, 1);
  targets[1].fill_(kIgnoredTarget);
  const double expected = model->loss(tokens.slice(0, 0, 1), targets.slice(0, 0, 1)).item<double>();
  EXPECT_NEAR(model->loss(tokens, targets).item<double>(), expected, 1e-6);
}

TEST(Llama, RecomputationChangesNoBit) {
  for (const bool biases : {false, true}) {
    LlamaConfig config = small_llama();
    config.attention_bias = config.mlp_bias = biases;
    Llama model(config);
    model->initialise(3);
    const at::Tensor tokens = random_tokens(3, 17);
    const auto kept = gradients(model, tokens);
    model->set_recompute(true);
    expect_equal_tensors(kept, gradients(model, tokens));
    // Gradients also add up over micro-batches, and go to grad() as they go to backward().
    model->loss(tokens, tokens.roll(-1, 1)).backward();
    EXPECT_TRUE(at::equal(model->embed->weight.grad(), kept[0] + kept[0]));
    const auto asked = torch::autograd::grad({model->loss(tokens, tokens.roll(-1, 1))}, model->parameters());
    expect_equal_tensors(kept, asked);
  }
}

TEST(Llama, RecomputationKnowsFrozenWeights) {
  Llama model(small_llama());
  model->initialise(3);
  model->embed->weight.set_requires_grad(false);
  model->layers[0]->gate->weight.set_requires_grad(false);
  const at::Tensor tokens = random_tokens(3, 17);
  const auto kept = gradients(model, tokens);
  EXPECT_FALSE(kept[0].defined());
  model->set_recompute(true);
  expect_equal_tensors(kept, gradients(model, tokens));
}

TEST(Llama, RecomputationIsMeasuredOnce) {
  Llama model(small_llama());
  model->initialise(3);
  nn::LinearPaths& paths = model->layers[0]->up->paths();
  paths.measure_products = true;
  const at::Tensor tokens = random_tokens(3, 17);
  gradients(model, tokens);
  const double once = paths.measured[2].squared_norm;
  EXPECT_GT(once, 0);
  paths.begin_step();
  model->set_recompute(true);
  gradients(model, tokens);
  EXPECT_EQ(paths.measured[2].squared_norm, once);
  EXPECT_TRUE(paths.observing);
}

TEST(Llama, LearnsABatchByHeart) {
  Llama model(small_llama());
  model->initialise(1);
  const at::Tensor tokens = random_tokens(2, 12);
  const at::Tensor targets = tokens.roll(-1, 1);
  const double before = model->loss(tokens, targets).item<double>();
  for (int step = 0; step < 60; ++step) {
    model->zero_grad();
    model->loss(tokens, targets).backward();
    const at::NoGradGuard no_gradients;
    for (at::Tensor& parameter : model->parameters()) parameter.sub_(parameter.grad(), 1.0);
  }
  EXPECT_LT(model->loss(tokens, targets).item<double>(), before * 0.6);
}

TEST(Llama, OtherPrecisionsRunToo) {
  Llama model(small_llama());
  model->initialise(1);
  const at::Tensor tokens = random_tokens(2, 12);
  const double expected = model->loss(tokens, tokens.roll(-1, 1)).item<double>();
  model->to(at::kBFloat16);
  const at::Tensor loss = model->loss(tokens, tokens.roll(-1, 1));
  EXPECT_EQ(loss.scalar_type(), at::kFloat);
  EXPECT_NEAR(loss.item<double>(), expected, 0.05);
  loss.backward();
  EXPECT_EQ(model->embed->weight.grad().scalar_type(), at::kBFloat16);
}

TEST(Llama, SaysWhatIsWrongWithTokens) {
  Llama model(small_llama());
  model->initialise(1);
  const at::Tensor tokens = random_tokens(2, 12);
  EXPECT_EQ(error_of<Error>([&] { model->forward(tokens[0]); }),
            "[model] tokens: expected int64 of [batch, positions], got Long of [12]");
  EXPECT_NE(error_of<Error>([&] { model->forward(tokens.to(at::kInt)); }).find("got Int"), std::string::npos);
  EXPECT_EQ(error_of<Error>([&] { model->forward(random_tokens(1, 33)); }),
            "[model] tokens: expected at most 32 positions, got 33");
  EXPECT_NE(error_of<Error>([&] { model->loss(tokens, tokens.slice(1, 1)); }).find("[2, 12], got Long of [2, 11]"),
            std::string::npos);
  LlamaConfig config = small_llama();
  config.head_dim = 5;
  EXPECT_THROW(Llama{config}, Error);
}

}  // namespace
}  // namespace gnmr::models
