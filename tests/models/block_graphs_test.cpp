// SPDX-License-Identifier: Apache-2.0
// Graphs against the same operators one by one, bit for bit. Where there is no GPU all but the last ones are skipped.
#include "gnmr/models/block_graphs.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "gnmr/core/error.h"
#include "gnmr/kernels/device.h"
#include "gnmr/models/llama.h"
#include "gnmr/torch/units.h"

namespace gnmr::models {
namespace {

constexpr std::size_t kBlocks = 3;
constexpr std::size_t kUnitsOfABlock = 7;

/// Sizes that real FP8 products take.
LlamaConfig small(bool biases = false) {
  LlamaConfig config;
  config.vocabulary = 256;
  config.hidden = 128;
  config.intermediate = 256;
  config.layers = kBlocks;
  config.heads = 4;
  config.key_value_heads = 2;
  config.head_dim = 32;
  config.max_positions = 128;
  config.attention_bias = config.mlp_bias = biases;
  return config;
}

bool has_gpu() { return kernels::available() && nn::can_capture(c10::Device(at::kCUDA, 0)); }

#define SKIP_WITHOUT_GPU() \
  if (!has_gpu()) GTEST_SKIP() << "no GPU, or a build that cannot capture"

/// Attention as plain products: backward of the fused kernels adds in no fixed order.
class PlainAttention {
 public:
  PlainAttention() { set(false); }
  ~PlainAttention() { set(true); }
  PlainAttention(const PlainAttention&) = delete;
  PlainAttention& operator=(const PlainAttention&) = delete;

 private:
  static void set(bool fused) {
    at::globalContext().setSDPUseFlash(fused);
    at::globalContext().setSDPUseMemEfficient(fused);
    at::globalContext().setSDPUseCuDNN(fused);
  }
};

at::Tensor tokens_of(std::int64_t step, std::int64_t micro_batch, std::int64_t positions = 64) {
  at::manual_seed(static_cast<std::uint64_t>(100 * step + micro_batch));
  return at::randint(256, {2, positions}, at::TensorOptions().dtype(at::kLong)).to(at::kCUDA);
}

/// Who is high in each step: sets come back, in one block and in all.
const std::vector<std::vector<UnitIndex>> kHigh{{}, {}, {1}, {}, {1}, {2, 10, 20}, {}, {2, 10, 20}, {1}, {}};

struct Settings {
  std::string recipe = "fp8-tensorwise";
  bool recompute = false;
  bool biases = false;
  std::int64_t micro_batches = 2;
  at::ScalarType type = at::kBFloat16;
};

/// All losses, gradients and final weights of a short training.
struct Course {
  std::vector<std::string> names;
  std::vector<at::Tensor> values;
  GraphStatistics statistics;
};

Course train(const Settings& settings, bool graphs) {
  Llama model(small(settings.biases));
  model->initialise(3);
  model->to(c10::Device(at::kCUDA, 0), settings.type);
  model->set_recompute(settings.recompute);
  model->set_graphs(graphs);
  std::shared_ptr<const recipes::Recipe> recipe;
  if (settings.recipe != "none") {
    recipe = std::make_shared<const recipes::Recipe>(recipes::load_recipe(settings.recipe));
  }
  nn::RecoverableUnits units(*model, recipe, {});
  Course course;
  for (std::size_t step = 0; step < kHigh.size(); ++step) {
    units.request(kHigh[step]);
    units.begin_step(static_cast<std::int64_t>(step));
    for (std::int64_t micro_batch = 0; micro_batch < settings.micro_batches; ++micro_batch) {
      units.begin_micro_batch(micro_batch);
      const at::Tensor tokens = tokens_of(static_cast<std::int64_t>(step), micro_batch);
      const at::Tensor loss = model->loss(tokens, tokens.roll(-1, 1));
      loss.backward();
      course.names.push_back("step " + std::to_string(step) + " loss " + std::to_string(micro_batch));
      course.values.push_back(loss.detach().clone());
    }
    units.end_step();
    const at::NoGradGuard no_gradients;
    for (const auto& item : model->named_parameters()) {
      const at::Tensor gradient = item.value().grad();
      course.names.push_back("step " + std::to_string(step) + " gradient of " + item.key());
      course.values.push_back(gradient.clone());
      item.value().sub_(gradient, 0.1);
      item.value().mutable_grad().reset();
    }
  }
  course.statistics = model->graph_statistics();
  return course;
}

void expect_same_bits(const Course& a, const Course& b) {
  ASSERT_EQ(a.names, b.names);
  for (std::size_t i = 0; i < a.names.size(); ++i) {
    ASSERT_TRUE(a.values[i].isfinite().all().item<bool>()) << a.names[i];
    ASSERT_TRUE(at::equal(a.values[i], b.values[i]))
        << a.names[i] << ": off by "
        << (a.values[i].to(at::kDouble) - b.values[i].to(at::kDouble)).abs().max().item<double>() << " of "
        << a.values[i].abs().max().item<double>() << ". " << b.statistics.last_failure;
  }
}

/// How many variants of blocks the steps from `first_step` on have.
std::size_t variants_in(std::size_t first_step, bool tells_micro_batches) {
  std::set<std::tuple<std::size_t, std::set<std::size_t>, bool>> variants;
  for (std::size_t step = first_step; step < kHigh.size(); ++step) {
    for (std::size_t block = 0; block < kBlocks; ++block) {
      std::set<std::size_t> high;
      for (const UnitIndex unit : kHigh[step]) {
        if (unit / kUnitsOfABlock == block) high.insert(unit % kUnitsOfABlock);
      }
      variants.emplace(block, high, false);
      if (tells_micro_batches) variants.emplace(block, high, true);
    }
  }
  return variants.size();
}

class BlockGraphsTest : public ::testing::TestWithParam<std::tuple<std::string, bool>> {};

TEST_P(BlockGraphsTest, ChangeNoBit) {
  SKIP_WITHOUT_GPU();
  const PlainAttention plain;
  const auto& [recipe, recompute] = GetParam();
  const Settings settings{.recipe = recipe, .recompute = recompute};
  const Course eager = train(settings, false);
  const Course captured = train(settings, true);
  expect_same_bits(eager, captured);
  // Delayed scales are there after the first step; then a step's first micro-batch is not like the others.
  const bool delayed = recipe == "fp8-delayed";
  const std::size_t eager_steps = delayed ? 1 : 0;
  const GraphStatistics& seen = captured.statistics;
  EXPECT_EQ(seen.captures, recipe == "none" ? kBlocks : variants_in(eager_steps, delayed));
  EXPECT_EQ(seen.replays, kBlocks * 2 * (kHigh.size() - eager_steps));
  EXPECT_EQ(seen.eager_runs, kBlocks * 2 * eager_steps);
  EXPECT_EQ(seen.over_limit, 0u);
  EXPECT_EQ(seen.failed_captures, 0u) << seen.last_failure;
}

INSTANTIATE_TEST_SUITE_P(Recipes, BlockGraphsTest,
                         ::testing::Combine(::testing::Values("none", "fp8-tensorwise", "fp8-delayed", "fp8-rowwise",
                                                              "fp8-deepseek"),
                                            ::testing::Bool()),
                         [](const auto& parameter) {
                           std::string name = std::get<0>(parameter.param);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name + (std::get<1>(parameter.param) ? "_recomputed" : "_kept");
                         });

/// Where this fails the comparison above says nothing of graphs.
TEST(BlockGraphs, OperatorsRepeatThemselves) {
  SKIP_WITHOUT_GPU();
  const PlainAttention plain;
  expect_same_bits(train({}, false), train({}, false));
}

TEST(BlockGraphs, TakeBiasesAndFloat32) {
  SKIP_WITHOUT_GPU();
  const PlainAttention plain;
  const Settings settings{.biases = true, .micro_batches = 1, .type = at::kFloat};
  expect_same_bits(train(settings, false), train(settings, true));
}

TEST(BlockGraphs, TakeFusedAttention) {
  SKIP_WITHOUT_GPU();
  const Course eager = train({}, false);
  const Course captured = train({}, true);
  ASSERT_EQ(captured.statistics.failed_captures, 0u) << captured.statistics.last_failure;
  EXPECT_EQ(captured.statistics.eager_runs, 0u);
  // The first step, before rounding of one has led to other weights in the next.
  for (std::size_t i = 0; eager.names[i].starts_with("step 0"); ++i) {
    const at::Tensor difference = captured.values[i].to(at::kDouble) - eager.values[i].to(at::kDouble);
    EXPECT_LE(difference.norm().item<double>(), 0.02 * eager.values[i].to(at::kDouble).norm().item<double>())
        << eager.names[i];
  }
}

/// A model with units, on the GPU, that has met its usual variant.
struct Trained {
  Trained() : model(small()) {
    model->initialise(3);
    model->to(c10::Device(at::kCUDA, 0), at::kBFloat16);
    model->set_graphs(true);
    auto recipe = std::make_shared<const recipes::Recipe>(recipes::load_recipe("fp8-tensorwise"));
    units = std::make_unique<nn::RecoverableUnits>(*model, recipe, nn::UnitSelection{});
    step({});
  }

  at::Tensor loss(std::int64_t seed, std::int64_t positions = 64) {
    const at::Tensor tokens = tokens_of(seed, 0, positions);
    return model->loss(tokens, tokens.roll(-1, 1));
  }

  std::vector<at::Tensor> gradients_of(const at::Tensor& value) {
    model->zero_grad();
    value.backward();
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& parameter : model->parameters()) gradients.push_back(parameter.grad().clone());
    return gradients;
  }

  void step(const std::vector<UnitIndex>& high, std::int64_t positions = 64) {
    units->request(high);
    units->begin_step(0);
    gradients_of(loss(1, positions));
    units->end_step();
  }

  GraphStatistics statistics() const { return model->graph_statistics(); }

  Llama model;
  std::unique_ptr<nn::RecoverableUnits> units;
};

void expect_equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(at::equal(a[i], b[i])) << i;
}

TEST(BlockGraphs, KeepOnlySoManyVariants) {
  SKIP_WITHOUT_GPU();
  Trained trained;
  // All layers of the first block but for one, in turn, and pairs.
  for (UnitIndex unit = 0; unit < 7; ++unit) trained.step({unit});
  EXPECT_EQ(trained.statistics().captures, kBlocks + 7);
  EXPECT_EQ(trained.statistics().over_limit, 0u);
  trained.step({0, 1});
  EXPECT_EQ(trained.statistics().over_limit, 1u);
  EXPECT_EQ(trained.statistics().eager_runs, 1u);
  trained.step({6});
  EXPECT_EQ(trained.statistics().captures, kBlocks + 7);
  EXPECT_EQ(trained.statistics().eager_runs, 1u);
}

TEST(BlockGraphs, LeaveAloneWhatIsMeasured) {
  SKIP_WITHOUT_GPU();
  Trained trained;
  const std::uint64_t replays = trained.statistics().replays;
  trained.units->measure_casts(true);
  trained.step({});
  trained.units->measure_casts(false);
  {
    const nn::EvaluationPaths evaluation(*trained.units, nn::EvaluatedPath::low);
    const at::NoGradGuard no_gradients;
    trained.loss(1);
  }
  trained.units->begin_step(1, PassKind::trial);
  trained.gradients_of(trained.loss(1));
  EXPECT_EQ(trained.statistics().replays, replays);
  EXPECT_EQ(trained.statistics().captures, kBlocks);
  EXPECT_EQ(trained.statistics().eager_runs, 2 * kBlocks);
  trained.step({});
  EXPECT_EQ(trained.statistics().replays, replays + kBlocks);
}

TEST(BlockGraphs, HaveAVariantForEachLength) {
  SKIP_WITHOUT_GPU();
  Trained trained;
  trained.step({}, 128);  // the table of angles grows, too
  EXPECT_EQ(trained.statistics().captures, 2 * kBlocks);
  trained.step({}, 64);
  EXPECT_EQ(trained.statistics().captures, 2 * kBlocks);
  EXPECT_EQ(trained.statistics().eager_runs, 0u);
}

TEST(BlockGraphs, ASecondLossBeforeBackwardRunsBesideThem) {
  SKIP_WITHOUT_GPU();
  const PlainAttention plain;
  Trained trained;
  trained.units->begin_step(1);
  const auto both = [&] {
    const at::Tensor first = trained.loss(5);
    const at::Tensor second = trained.loss(6);
    return trained.gradients_of(first + second);
  };
  const std::uint64_t replays = trained.statistics().replays;
  const auto captured = both();
  EXPECT_EQ(trained.statistics().replays, replays + kBlocks);
  EXPECT_EQ(trained.statistics().eager_runs, kBlocks);
  trained.model->set_graphs(false);
  expect_equal(captured, both());
}

TEST(BlockGraphs, GradientsOutliveTheNextPass) {
  SKIP_WITHOUT_GPU();
  const PlainAttention plain;
  Trained trained;
  trained.units->begin_step(1);
  const auto asked = torch::autograd::grad({trained.loss(5)}, trained.model->parameters());
  std::vector<at::Tensor> copies;
  for (const at::Tensor& one : asked) copies.push_back(one.clone());
  trained.gradients_of(trained.loss(6));
  expect_equal(asked, copies);
  trained.model->set_graphs(false);
  expect_equal(asked, torch::autograd::grad({trained.loss(5)}, trained.model->parameters()));
}

TEST(BlockGraphs, ABackwardThatComesTooLateIsAnError) {
  SKIP_WITHOUT_GPU();
  Trained trained;
  trained.units->begin_step(1);
  const at::Tensor first = trained.loss(5);
  first.backward({}, /*retain_graph=*/true);
  first.backward({}, /*retain_graph=*/true);  // nothing has come between
  const at::Tensor second = trained.loss(6);
  EXPECT_THROW(first.backward(), std::exception);
  second.backward();
}

TEST(BlockGraphs, FrozenWeightsHaveNoGradient) {
  SKIP_WITHOUT_GPU();
  Trained trained;
  for (at::Tensor& parameter : trained.model->embed->parameters()) parameter.set_requires_grad(false);
  trained.model->layers[0]->gate->weight.set_requires_grad(false);
  trained.model->zero_grad();
  trained.units->begin_step(1);
  trained.loss(5).backward();
  EXPECT_FALSE(trained.model->layers[0]->gate->weight.grad().defined());
  EXPECT_TRUE(trained.model->layers[0]->up->weight.grad().defined());
  EXPECT_EQ(trained.statistics().captures, kBlocks + 1);
}

TEST(BlockGraphs, ChangeNothingOnTheCpu) {
  Llama model(small());
  model->initialise(3);
  const at::Tensor tokens = at::arange(32, at::TensorOptions().dtype(at::kLong)).view({2, 16});
  const auto gradients = [&] {
    return torch::autograd::grad({model->loss(tokens, tokens.roll(-1, 1))}, model->parameters());
  };
  for (const bool recompute : {false, true}) {
    model->set_recompute(recompute);
    model->set_graphs(false);
    const auto plain = gradients();
    model->set_graphs(true);
    expect_equal(plain, gradients());
    EXPECT_EQ(model->graph_statistics().eager_runs, kBlocks);
    EXPECT_EQ(model->graph_statistics().captures, 0u);
  }
  const at::NoGradGuard no_gradients;
  model->forward(tokens);
  EXPECT_EQ(model->graph_statistics().eager_runs, kBlocks);
}

TEST(BlockGraphs, ABuildThatCannotCaptureSaysSo) {
  EXPECT_FALSE(nn::can_capture(c10::Device(at::kCPU)));
  EXPECT_EQ(nn::device_memory(c10::Device(at::kCPU)).reserved, 0);
}

}  // namespace
}  // namespace gnmr::models
