// SPDX-License-Identifier: Apache-2.0
// Linear layers of LLaMA-2 13B's shapes in real FP8 against bf16, casts included: forward and backward, both in the
// same run. Prints a Markdown table. Needs a GPU: bench/gpu.sh layers.
#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "gnmr/kernels/device.h"
#include "gnmr/recipes/recipe.h"
#include "gnmr/torch/device_numbers.h"
#include "gnmr/torch/switchable_linear.h"

namespace {

using gnmr::nn::SwitchableLinear;

constexpr std::int64_t kTokens = 8192;
constexpr int kRuns = 15;

struct Shape {
  const char* name;
  std::int64_t in;
  std::int64_t out;
  int count;  // of such layers in a block
};
constexpr Shape kShapes[] = {
    {"5120 -> 5120", 5120, 5120, 4}, {"5120 -> 13824", 5120, 13824, 2}, {"13824 -> 5120", 13824, 5120, 1}};

/// One layer with an input and a gradient.
struct Case {
  Case(const Shape& shape, const std::string& recipe) : layer(shape.in, shape.out) {
    const auto options = at::TensorOptions().dtype(at::kBFloat16).device(at::kCUDA);
    layer->to(c10::Device(at::kCUDA), at::kBFloat16);
    {
      const at::NoGradGuard no_gradients;
      layer->weight.normal_(0.0, 0.02);
    }
    input = at::randn({kTokens, shape.in}, options).requires_grad_();
    gradient = at::randn({kTokens, shape.out}, options) * 1e-3;
    if (recipe == "bf16") return;
    layer->paths().recipe = std::make_shared<const gnmr::recipes::Recipe>(gnmr::recipes::load_recipe(recipe));
    layer->paths().low.fill(true);
  }

  void run() {
    gnmr::nn::LinearPaths& paths = layer->paths();
    if (paths.numbers) paths.numbers->begin_step();
    layer->forward(input).backward(gradient);
    if (paths.numbers) paths.numbers->end_step();
    input.mutable_grad().reset();
    layer->weight.mutable_grad().reset();
  }

  SwitchableLinear layer;
  at::Tensor input, gradient;
};

/// Median milliseconds of each case; they take turns.
std::vector<double> medians_ms(std::vector<std::unique_ptr<Case>>& cases) {
  const c10::Device device(at::kCUDA, 0);
  const c10::impl::VirtualGuardImpl guard(at::kCUDA);
  std::vector<std::vector<double>> times(cases.size());
  for (int run = -3; run < kRuns; ++run) {
    for (std::size_t index = 0; index < cases.size(); ++index) {
      c10::Event start(at::kCUDA, c10::EventFlag::BACKEND_DEFAULT);
      c10::Event end(at::kCUDA, c10::EventFlag::BACKEND_DEFAULT);
      start.record(guard.getStream(device));
      cases[index]->run();
      end.record(guard.getStream(device));
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

int measure() {
  if (!gnmr::kernels::available()) {
    fmt::print(stderr, "gnmr_gpu_layers: no CUDA device\n");
    return EXIT_FAILURE;
  }
  const std::vector<std::string> recipes{"bf16", "fp8-tensorwise", "fp8-delayed", "fp8-rowwise", "fp8-deepseek"};
  fmt::print(
      "\nLinear layers of LLaMA-2 13B, {} tokens, bfloat16, forward and backward, casts included; milliseconds, "
      "medians of {} runs\n\n| layer |",
      kTokens, kRuns);
  for (const std::string& recipe : recipes) fmt::print(" {} |", recipe);
  fmt::print("\n|---|");
  for (std::size_t index = 0; index < recipes.size(); ++index) fmt::print("---|");
  std::vector<double> block(recipes.size(), 0.0);
  for (const Shape& shape : kShapes) {
    std::vector<std::unique_ptr<Case>> cases;
    for (const std::string& recipe : recipes) cases.push_back(std::make_unique<Case>(shape, recipe));
    const std::vector<double> times = medians_ms(cases);
    fmt::print("\n| {} |", shape.name);
    for (std::size_t index = 0; index < times.size(); ++index) {
      block[index] += shape.count * times[index];
      fmt::print(" {:.3f} ({:.2f} x) |", times[index], times[0] / times[index]);
    }
  }
  fmt::print("\n| all 7 of a block |");
  for (const double time : block) fmt::print(" {:.3f} ({:.2f} x) |", time, block[0] / time);
  fmt::print("\n");
  return EXIT_SUCCESS;
}

}  // namespace

int main() {
  try {
    return measure();
  } catch (const std::exception& error) {
    fmt::print(stderr, "gnmr_gpu_layers: {}\n", error.what());
    return EXIT_FAILURE;
  }
}
