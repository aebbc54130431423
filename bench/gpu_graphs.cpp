// SPDX-License-Identifier: Apache-2.0
// A step (forward and backward) with its blocks as CUDA graphs against the same operators one by one, both in the same
// run: a small model, and two blocks as wide as LLaMA-2 13B's. Prints Markdown tables. Needs a GPU.
#include <ATen/Context.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "bench/timing.h"
#include "gnmr/kernels/device.h"
#include "gnmr/models/llama.h"
#include "gnmr/recipes/recipe.h"
#include "gnmr/torch/cuda_graph.h"
#include "gnmr/torch/units.h"

namespace {

using gnmr::UnitIndex;
using gnmr::bench::median;
using gnmr::models::LlamaConfig;

constexpr const char* kRecipe = "fp8-tensorwise";
constexpr int kWarmUps = 4;
constexpr int kRuns = 21;
const c10::Device kDevice(at::kCUDA, 0);

struct Size {
  const char* name;
  LlamaConfig config;
  std::int64_t batch;
  std::int64_t positions;
};

std::vector<Size> sizes() {
  LlamaConfig nano;
  nano.vocabulary = 256;
  nano.hidden = 256;
  nano.intermediate = 704;
  nano.layers = 4;
  nano.heads = nano.key_value_heads = 8;
  nano.head_dim = 32;
  LlamaConfig wide;
  wide.vocabulary = 32000;
  wide.hidden = 5120;
  wide.intermediate = 13824;
  wide.layers = 2;
  wide.heads = wide.key_value_heads = 40;
  wide.head_dim = 128;
  wide.max_positions = 4096;
  return {{"4 layers of 256, 8 x 256 tokens", nano, 8, 256}, {"2 layers of 5120, 2 x 4096 tokens", wide, 2, 4096}};
}

/// One model with its units.
class Side {
 public:
  Side(const Size& size, bool recompute, bool graphs) : model_(size.config) {
    model_->to(kDevice, at::kBFloat16);
    {
      const at::NoGradGuard no_gradients;  // on the device: drawing a large model on the host takes minutes
      for (const auto& item : model_->named_parameters()) {
        if (item.value().dim() == 1) {
          item.value().fill_(1);
        } else {
          item.value().normal_(0.0, 0.02);
        }
      }
    }
    model_->set_recompute(recompute);
    model_->set_graphs(graphs);
    const auto recipe = std::make_shared<const gnmr::recipes::Recipe>(gnmr::recipes::load_recipe(kRecipe));
    units_ = std::make_unique<gnmr::nn::RecoverableUnits>(*model_, recipe, gnmr::nn::UnitSelection{});
    const auto options = at::TensorOptions().dtype(at::kLong).device(kDevice);
    tokens_ = at::randint(size.config.vocabulary, {size.batch, size.positions}, options);
    targets_ = tokens_.roll(-1, 1);
  }

  /// Milliseconds of a step with these units high, from the host's first call to the device's last kernel.
  double step_ms(const std::vector<UnitIndex>& high) {
    const c10::impl::VirtualGuardImpl guard(at::kCUDA);
    c10::Event idle(at::kCUDA);
    idle.record(guard.getStream(kDevice));
    idle.synchronize();
    return gnmr::bench::microseconds_of([&] {
             units_->request(high);
             units_->begin_step(step_++);
             model_->loss(tokens_, targets_).backward();
             units_->end_step();
             c10::Event end(at::kCUDA);
             end.record(guard.getStream(kDevice));
             end.synchronize();
             model_->zero_grad();
           }) /
           1000;
  }

  std::size_t units() const { return units_->units().size(); }
  gnmr::models::GraphStatistics statistics() const { return model_->graph_statistics(); }

 private:
  gnmr::models::Llama model_;
  std::unique_ptr<gnmr::nn::RecoverableUnits> units_;
  at::Tensor tokens_;
  at::Tensor targets_;
  std::int64_t step_ = 0;
};

/// A unit of each block, the `which`-th.
std::vector<UnitIndex> one_of_each_block(const Side& side, UnitIndex which) {
  std::vector<UnitIndex> high;
  for (UnitIndex unit = which; unit < side.units(); unit += 7) high.push_back(unit);
  return high;
}

double gigabytes(std::int64_t bytes) { return static_cast<double>(bytes) / 1e9; }

/// The most device memory that steps of a model take, by itself, once everything was met.
double memory_of(const Size& size, bool recompute, bool graphs) {
  gnmr::nn::release_unused_memory(kDevice);
  Side side(size, recompute, graphs);
  // Two variants of each block.
  for (int run = 0; run < 2; ++run) side.step_ms({});
  for (int run = 0; run < 2; ++run) side.step_ms(one_of_each_block(side, 0));
  gnmr::nn::release_unused_memory(kDevice);
  for (int run = 0; run < 2; ++run) side.step_ms({});
  return gigabytes(gnmr::nn::device_memory(kDevice).most_reserved);
}

struct Times {
  double step = 0;
  std::vector<double> changed = {};  // the first, second and third step with another set, each after steps without
};

/// Both sides in turn.
std::vector<Times> times_of(std::vector<std::unique_ptr<Side>>& sides) {
  std::vector<Times> times(sides.size());
  std::vector<std::vector<double>> steps(sides.size());
  for (int run = -kWarmUps; run < kRuns; ++run) {
    for (std::size_t index = 0; index < sides.size(); ++index) {
      const double milliseconds = sides[index]->step_ms({});
      if (run >= 0) steps[index].push_back(milliseconds);
    }
  }
  for (std::size_t index = 0; index < sides.size(); ++index) times[index].step = median(steps[index]);
  for (int change = 0; change < 3; ++change) {
    for (std::size_t index = 0; index < sides.size(); ++index) {
      times[index].changed.push_back(sides[index]->step_ms(one_of_each_block(*sides[index], 6)));
      for (int run = 0; run < 3; ++run) sides[index]->step_ms({});
    }
  }
  return times;
}

void measure(const Size& size, bool recompute) {
  const double memory[2] = {memory_of(size, recompute, false), memory_of(size, recompute, true)};
  gnmr::nn::release_unused_memory(kDevice);
  std::vector<std::unique_ptr<Side>> sides;
  for (const bool graphs : {false, true}) sides.push_back(std::make_unique<Side>(size, recompute, graphs));
  const std::vector<Times> times = times_of(sides);
  const std::string name = std::string(size.name) + (recompute ? ", recomputed" : "");
  fmt::print("| {} | {:.3f} | {:.3f} | {:.2f} x | {:.2f} / {:.2f} | {:.2f} / {:.2f} / {:.2f} | {:.2f} | {:.2f} |\n",
             name, times[0].step, times[1].step, times[0].step / times[1].step, times[0].changed[0],
             times[0].changed[1], times[1].changed[0], times[1].changed[1], times[1].changed[2], memory[0], memory[1]);
  const gnmr::models::GraphStatistics seen = sides[1]->statistics();
  if (seen.eager_runs > 0 || seen.failed_captures > 0) {
    fmt::print(stderr, "gnmr_gpu_graphs: {}: {} runs of blocks were not graphs; {} captures failed: {}\n", name,
               seen.eager_runs, seen.failed_captures, seen.last_failure);
  }
  fmt::print(stderr, "gnmr_gpu_graphs: {}: {} captures, {} replays\n", name, seen.captures, seen.replays);
}

int run() {
  if (!gnmr::kernels::available() || !gnmr::nn::can_capture(kDevice)) {
    fmt::print(stderr, "gnmr_gpu_graphs: no CUDA device, or a build without CUDA's headers\n");
    return EXIT_FAILURE;
  }
  fmt::print(
      "\nA step (forward and backward) with blocks as CUDA graphs, {}, bfloat16; milliseconds on the host's clock, "
      "medians of {} steps in turn. A change makes one unit of each block high: its first, second and third time.\n\n"
      "| model | operators | graphs | ratio | change, operators | change, graphs | GB, operators | GB, graphs |\n"
      "|---|---|---|---|---|---|---|---|\n",
      kRecipe, kRuns);
  // Torch's allocator knows no device before it has given it something.
  const at::Tensor first = at::zeros({1}, at::TensorOptions().device(kDevice));
  for (const Size& size : sizes()) {
    for (const bool recompute : {false, true}) measure(size, recompute);
  }
  return EXIT_SUCCESS;
}

}  // namespace

int main() {
  try {
    return run();
  } catch (const std::exception& error) {
    fmt::print(stderr, "gnmr_gpu_graphs: {}\n", error.what());
    return EXIT_FAILURE;
  }
}
