// SPDX-License-Identifier: Apache-2.0
// Linear layers of LLaMA-2 13B's shapes in real FP8 against bf16, casts included: forward and backward, both in the
// same run; each layer with an input of its own, and with one input for q, k, v and one for gate, up, as a model has
// it. Prints Markdown tables of times, and of what waits for backward. Needs a GPU: bench/gpu.sh layers.
#include <ATen/ops/randn.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/core.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "gnmr/kernels/device.h"
#include "gnmr/recipes/recipe.h"
#include "gnmr/torch/cuda_graph.h"
#include "gnmr/torch/device_numbers.h"
#include "gnmr/torch/shared_input.h"
#include "gnmr/torch/switchable_linear.h"

namespace {

using gnmr::nn::SwitchableLinear;

constexpr std::int64_t kTokens = 8192;
constexpr int kRuns = 15;
const c10::Device kDevice(at::kCUDA, 0);

struct Shape {
  const char* name;
  std::int64_t in;
  std::int64_t out;
  int layers;    // that have one input
  int apart;     // of such in a block whose layers all have their own
  int in_model;  // of such in a block
};
constexpr Shape kShapes[] = {{"5120 -> 5120", 5120, 5120, 1, 4, 1},
                             {"5120 -> 13824", 5120, 13824, 1, 2, 0},
                             {"13824 -> 5120", 13824, 5120, 1, 1, 1},
                             {"q, k, v: three of 5120 -> 5120, one input", 5120, 5120, 3, 0, 1},
                             {"gate, up: two of 5120 -> 13824, one input", 5120, 13824, 2, 0, 1}};
const std::vector<std::string> kRecipes{"bf16", "fp8-tensorwise", "fp8-delayed", "fp8-rowwise", "fp8-deepseek"};

/// Layers with an input and gradients of what they make of it.
class Case {
 public:
  Case(const Shape& shape, const std::string& recipe, bool keep_low_weight) {
    const auto options = at::TensorOptions().dtype(at::kBFloat16).device(kDevice);
    input_ = at::randn({kTokens, shape.in}, options).requires_grad_();
    for (int index = 0; index < shape.layers; ++index) {
      SwitchableLinear& layer = layers_.emplace_back(shape.in, shape.out);
      layer->to(kDevice, at::kBFloat16);
      gradients_.push_back(at::randn({kTokens, shape.out}, options) * 1e-3);
      const at::NoGradGuard no_gradients;
      layer->weight.normal_(0.0, 0.02);
      if (recipe == "bf16") continue;
      layer->paths().recipe = std::make_shared<const gnmr::recipes::Recipe>(gnmr::recipes::load_recipe(recipe));
      layer->paths().low.fill(true);
      layer->paths().keep_low_weight = keep_low_weight;
    }
  }

  void run() {
    for (SwitchableLinear& layer : layers_) {
      if (layer->paths().numbers) layer->paths().numbers->begin_step();
    }
    torch::autograd::backward(forward(input_), gradients_);
    for (SwitchableLinear& layer : layers_) {
      if (layer->paths().numbers) layer->paths().numbers->end_step();
      layer->weight.mutable_grad().reset();
    }
    input_.mutable_grad().reset();
  }

  /// What waits between forward and backward, the input included where a layer keeps it.
  double kept_mib() {
    const std::int64_t before = gnmr::nn::device_memory(kDevice).allocated;
    const std::vector<at::Tensor> outputs = forward(input_ * 1.0);
    std::int64_t kept = gnmr::nn::device_memory(kDevice).allocated - before;
    for (const at::Tensor& output : outputs) kept -= static_cast<std::int64_t>(output.nbytes());
    return static_cast<double>(kept) / (1 << 20);
  }

 private:
  std::vector<at::Tensor> forward(const at::Tensor& input) {
    const gnmr::nn::SharedInput shared(input);
    std::vector<at::Tensor> outputs;
    for (SwitchableLinear& layer : layers_) outputs.push_back(layer->forward(input));
    return outputs;
  }

  std::vector<SwitchableLinear> layers_;
  at::Tensor input_;
  std::vector<at::Tensor> gradients_;
};

/// Median milliseconds of each case; they take turns.
std::vector<double> medians_ms(std::vector<std::unique_ptr<Case>>& cases) {
  const c10::impl::VirtualGuardImpl guard(at::kCUDA);
  std::vector<std::vector<double>> times(cases.size());
  for (int run = -3; run < kRuns; ++run) {
    for (std::size_t index = 0; index < cases.size(); ++index) {
      c10::Event start(at::kCUDA, c10::EventFlag::BACKEND_DEFAULT);
      c10::Event end(at::kCUDA, c10::EventFlag::BACKEND_DEFAULT);
      start.record(guard.getStream(kDevice));
      cases[index]->run();
      end.record(guard.getStream(kDevice));
      end.synchronize();
      if (run >= 0) times[index].push_back(start.elapsedTime(end));
    }
  }
  std::vector<double> medians;
  for (std::vector<double>& of_case : times) {
    std::sort(of_case.begin(), of_case.end());
    medians.push_back(of_case[of_case.size() / 2]);
  }
  return medians;
}

/// Times and memory of one shape, one a recipe.
struct Measured {
  std::vector<double> ms;
  std::vector<double> kept_mib;
};

Measured measure(const Shape& shape, bool keep_low_weight) {
  std::vector<std::unique_ptr<Case>> cases;
  for (const std::string& recipe : kRecipes) cases.push_back(std::make_unique<Case>(shape, recipe, keep_low_weight));
  Measured measured{.ms = medians_ms(cases), .kept_mib = {}};
  for (const std::unique_ptr<Case>& one : cases) measured.kept_mib.push_back(one->kept_mib());
  return measured;
}

/// Sums over a block, one a recipe.
std::vector<double> total(const std::vector<Measured>& measured, std::vector<double> Measured::*what,
                          int Shape::*count) {
  std::vector<double> sums(kRecipes.size(), 0.0);
  for (std::size_t shape = 0; shape < measured.size(); ++shape) {
    for (std::size_t recipe = 0; recipe < sums.size(); ++recipe) {
      sums[recipe] += kShapes[shape].*count * (measured[shape].*what)[recipe];
    }
  }
  return sums;
}

void print_head(const std::string& title, const char* first) {
  fmt::print("\n{}\n\n| {} |", title, first);
  for (const std::string& recipe : kRecipes) fmt::print(" {} |", recipe);
  fmt::print("\n|---|");
  for (std::size_t index = 0; index < kRecipes.size(); ++index) fmt::print("---|");
  fmt::print("\n");
}

void print_times(const std::string& name, const std::vector<double>& ms) {
  fmt::print("| {} |", name);
  for (const double time : ms) fmt::print(" {:.3f} ({:.2f} x) |", time, ms[0] / time);
  fmt::print("\n");
}

void print_memory(const std::string& name, const std::vector<double>& mib) {
  fmt::print("| {} |", name);
  for (const double kept : mib) fmt::print(" {:.0f} |", kept);
  fmt::print("\n");
}

int measure_all() {
  if (!gnmr::kernels::available()) {
    fmt::print(stderr, "gnmr_gpu_layers: no CUDA device\n");
    return EXIT_FAILURE;
  }
  std::vector<Measured> kept;
  std::vector<Measured> again;
  for (const Shape& shape : kShapes) kept.push_back(measure(shape, true));
  for (const Shape& shape : kShapes) again.push_back(measure(shape, false));
  print_head(fmt::format("Linear layers of LLaMA-2 13B, {} tokens, bfloat16, forward and backward, casts included; "
                         "milliseconds, medians of {} runs",
                         kTokens, kRuns),
             "layer");
  for (std::size_t index = 0; index < kept.size(); ++index) print_times(kShapes[index].name, kept[index].ms);
  print_times("all 7 of a block, an input each", total(kept, &Measured::ms, &Shape::apart));
  print_times("all 7 of a block, as a model has them", total(kept, &Measured::ms, &Shape::in_model));
  print_times("the same, weights cast again in backward", total(again, &Measured::ms, &Shape::in_model));
  print_head("What waits between forward and backward, MiB", "layers");
  print_memory("all 7 of a block, an input each", total(kept, &Measured::kept_mib, &Shape::apart));
  print_memory("all 7 of a block, as a model has them", total(kept, &Measured::kept_mib, &Shape::in_model));
  print_memory("the same, weights cast again in backward", total(again, &Measured::kept_mib, &Shape::in_model));
  return EXIT_SUCCESS;
}

}  // namespace

int main() {
  try {
    return measure_all();
  } catch (const std::exception& error) {
    fmt::print(stderr, "gnmr_gpu_layers: {}\n", error.what());
    return EXIT_FAILURE;
  }
}
