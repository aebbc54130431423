// SPDX-License-Identifier: Apache-2.0
// The step of a model as wide as LLaMA-2 13B: FP8 against bf16, GNMR on against off, what recovery and a trial cost.
// gnmr_gpu_step [LAYERS [RECIPE [gate|pairs|patrol]]]; prints Markdown. Needs a GPU: bench/gpu.sh step.
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/zeros.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "gnmr/kernels/device.h"
#include "gnmr/kernels/norms.h"
#include "gnmr/models/llama.h"
#include "gnmr/recipes/recipe.h"
#include "gnmr/run/supervisor.h"
#include "gnmr/torch/device_stream.h"
#include "gnmr/torch/gradient_squares.h"
#include "gnmr/torch/units.h"
#include "gnmr/train/optimizer.h"
#include "gnmr/train/step_gate.h"

namespace {

using namespace gnmr;

constexpr std::int64_t kBatch = 2;
constexpr std::int64_t kSequence = 4096;
constexpr double kLearningRate = 1e-5;
constexpr double kClip = 1.0;
const c10::Device kDevice(at::kCUDA, 0);

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Milliseconds between two points of the stream.
class Stopwatch {
 public:
  Stopwatch() { start_.record(guard_.getStream(kDevice)); }
  double stop_ms() {
    end_.record(guard_.getStream(kDevice));
    end_.synchronize();
    return start_.elapsedTime(end_);
  }

 private:
  c10::impl::VirtualGuardImpl guard_{at::kCUDA};
  c10::Event start_{at::kCUDA, c10::EventFlag::BACKEND_DEFAULT};
  c10::Event end_{at::kCUDA, c10::EventFlag::BACKEND_DEFAULT};
};

double peak_gib() {
  const auto stats = c10::getDeviceAllocator(at::kCUDA)->getDeviceStats(0);
  return static_cast<double>(stats.allocated_bytes[0].peak) / static_cast<double>(1 << 30);
}
void forget_peak() { c10::getDeviceAllocator(at::kCUDA)->resetPeakStats(0); }

models::LlamaConfig wide_config(std::int64_t layers) {
  models::LlamaConfig config = models::preset_config("llama2-13b");
  config.layers = layers;
  return config;
}

/// A model with its optimizer and, beside it, everything that watches it.
class Bench {
 public:
  Bench(const models::LlamaConfig& config, const std::string& recipe, bool recast_weights = false)
      : model_(make_model(config)),
        units_(*model_, std::make_shared<const recipes::Recipe>(recipes::load_recipe(recipe)),
               {.recast_weights = recast_weights}),
        optimizer_(train::optimized_parameters(*model_), {}),
        supervisor_(units_.units(), supervision(), {}),
        gate_(train::make_device_gate({.optimizer = optimizer_,
                                       .units = units_,
                                       .options = supervisor_.controller().options(),
                                       .selector = supervisor_.controller().selector(),
                                       .largest_norm = kClip})),
        plain_gate_(at::zeros({static_cast<std::int64_t>(sizeof(kernels::Gate))},
                              at::TensorOptions().dtype(at::kByte).device(kDevice))) {
    gate_->load(supervisor_.controller());
    sums_ = at::zeros({static_cast<std::int64_t>(units_.parameters().size())},
                      at::TensorOptions().dtype(at::kDouble).device(kDevice));
    const std::int64_t positions = std::min(kSequence, config.max_positions);
    tokens_ = at::randint(0, model_->config().vocabulary, {kBatch, positions},
                          at::TensorOptions().dtype(at::kLong).device(kDevice));
  }

  nn::RecoverableUnits& units() { return units_; }
  std::int64_t parameters() const { return models::parameter_count(model_->config()); }

  /// A step with clipping and nothing else.
  void plain_step(std::span<const UnitIndex> high, PassKind pass = PassKind::step) {
    units_.request(high);
    units_.begin_step(++plain_steps_, pass);
    run_model();
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& parameter : units_.parameters()) gradients.push_back(parameter.grad());
    squares_.measure_on_device(gradients, sums_.mutable_data_ptr<double>());
    auto* const gate = static_cast<kernels::Gate*>(plain_gate_.mutable_data_ptr());
    squares_.norms().clip(sums_.const_data_ptr<double>(), kClip, {.gate = gate}, nn::current_stream(kDevice));
    optimizer_.step_behind(gate, kLearningRate);
    end();
  }

  /// The same with everything that GNMR does, as the trainer has it: the step before is reported while this one runs.
  /// `before_gate` is called when the gradients are on their way.
  void watched_step(const std::function<void()>& before_gate = [] {}) {
    const StepPlan plan = supervisor_.begin(++steps_);
    units_.request(supervisor_.high(), supervisor_.in_recovery());
    units_.begin_step(plan.batch, plan.pass, plan.again);
    train::BatchNumbers numbers;
    numbers.device_loss = run_model().to(at::kDouble);
    for (const at::Tensor& parameter : units_.parameters()) {
      numbers.has_gradient.push_back(parameter.grad().defined() ? 1 : 0);
    }
    before_gate();
    if (looks_first_) look_at_gradients();
    const auto start = std::chrono::steady_clock::now();
    gate_->pass(numbers, {.hold = plan.hold,
                          .flags = plan.gate_flags,
                          .error_limits = plan.error_limits,
                          .learning_rate = kLearningRate});
    gate_seconds_.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    end();
    settle();
    unsettled_ = {steps_, std::move(numbers)};
    trials_ += plan.pass == PassKind::trial ? 1 : 0;
  }

  /// Parts of the gate, for the host's clock; the gate is shut, so that there is no update.
  void norms_alone() { squares_.measure_on_device(some_gradients(), sums_.mutable_data_ptr<double>()); }
  void update_alone() {
    optimizer_.step_behind(static_cast<const kernels::Gate*>(plain_gate_.const_data_ptr()), kLearningRate);
  }
  void lists_alone() { units_.norm_lists(std::vector<std::uint8_t>(units_.parameters().size(), 1)); }

  /// Whether the steps from now on look at all gradients before the gate does, so that the host's cache has them.
  void look_first(bool wanted) {
    looks_first_ = wanted;
    gate_seconds_.clear();
    look_seconds_.clear();
  }

  /// Median host time of the gate's part of a step, and of looking at the gradients before it, in microseconds.
  double gate_microseconds() const { return 1e6 * median(gate_seconds_); }
  double look_microseconds() const { return 1e6 * median(look_seconds_); }
  int trials() const { return trials_; }

 private:
  static models::Llama make_model(const models::LlamaConfig& config) {
    // Weights are drawn on the device: the numbers do not matter here.
    models::Llama model(config);
    model->to(kDevice, at::kBFloat16);
    const at::NoGradGuard no_gradients;
    for (const auto& parameter : model->named_parameters()) {
      if (parameter.value().dim() >= 2) parameter.value().normal_(0.0, 0.02);
    }
    return model;
  }

  static run::SupervisorSettings supervision() {
    run::SupervisorSettings settings;
    settings.options.lag = 1;
    settings.backend = {.can_rerun = true, .sites = nn::kProductCount};
    return settings;
  }

  const std::vector<at::Tensor>& some_gradients() {
    for (std::size_t index = gradients_.size(); index < units_.parameters().size(); ++index) {
      const at::Tensor& parameter = units_.parameters()[index];
      gradients_.push_back(at::zeros(parameter.sizes(), parameter.options().requires_grad(false)));
      parameter.mutable_grad() = gradients_.back();
    }
    return gradients_;
  }

  at::Tensor run_model() {
    at::Tensor loss = model_->loss(tokens_, tokens_);
    loss.backward();
    return loss.detach();
  }

  void look_at_gradients() {
    const auto start = std::chrono::steady_clock::now();
    std::uintptr_t all = 0;
    for (const at::Tensor& parameter : units_.parameters()) {
      const at::Tensor& gradient = parameter.grad();
      all ^=
          reinterpret_cast<std::uintptr_t>(gradient.const_data_ptr()) + static_cast<std::uintptr_t>(gradient.numel());
    }
    seen_ = all;
    look_seconds_.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }

  void end() {
    units_.end_step();
    for (const at::Tensor& parameter : units_.parameters()) parameter.mutable_grad().reset();
  }

  void settle() {
    if (!unsettled_) return;
    train::BatchNumbers& numbers = unsettled_->second;
    numbers.pending->complete(numbers);
    const auto norms = units_.norms(numbers.squares, numbers.has_gradient, units_.product_squares());
    const std::vector<double> errors = units_.errors(units_.error_sums());
    supervisor_.report({.step = unsettled_->first,
                        .norms = norms.values,
                        .sampled = norms.sampled,
                        .errors = errors,
                        .held = numbers.held},
                       {.loss = numbers.loss});
    unsettled_.reset();
  }

  models::Llama model_;
  nn::RecoverableUnits units_;
  train::AdamW optimizer_;
  run::Supervisor supervisor_;
  std::unique_ptr<train::StepGate> gate_;
  nn::GradientSquares squares_;
  at::Tensor plain_gate_;
  at::Tensor tokens_;
  at::Tensor sums_;
  std::vector<at::Tensor> gradients_;  // of no step
  std::int64_t steps_ = 0;
  std::int64_t plain_steps_ = 0;
  std::optional<std::pair<std::int64_t, train::BatchNumbers>> unsettled_;
  std::vector<double> gate_seconds_;
  std::vector<double> look_seconds_;
  bool looks_first_ = false;
  volatile std::uintptr_t seen_ = 0;  // so that looking is not left out
  int trials_ = 0;
};

std::vector<UnitIndex> first_units(std::size_t count) {
  std::vector<UnitIndex> units(count);
  std::iota(units.begin(), units.end(), UnitIndex{0});
  return units;
}

/// Units spread over the model.
std::vector<UnitIndex> some_units(std::size_t count, std::size_t all) {
  std::vector<UnitIndex> units;
  for (std::size_t index = 0; index < count; ++index) units.push_back(static_cast<UnitIndex>(index * all / count));
  return units;
}

/// Medians of the times of works that take turns.
std::vector<double> times_ms(const std::vector<std::function<void()>>& works, int runs,
                             std::vector<std::vector<double>>* all = nullptr) {
  std::vector<std::vector<double>> times(works.size());
  for (int run = -2; run < runs; ++run) {
    for (std::size_t place = 0; place < works.size(); ++place) {
      // Clocks and heat favour a place in the round: they take turns in that too.
      const std::size_t index = run % 2 == 0 ? place : works.size() - 1 - place;
      Stopwatch watch;
      works[index]();
      const double time = watch.stop_ms();
      if (run >= 0) times[index].push_back(time);
    }
  }
  std::vector<double> medians;
  for (const auto& of_work : times) medians.push_back(median(of_work));
  if (all != nullptr) *all = std::move(times);
  return medians;
}

void print_on_and_off(Bench& bench, double share) {
  bench.units().patrol(share, kBatch * kSequence);
  std::vector<std::vector<double>> all;
  const std::vector<double> pair = times_ms({[&] { bench.plain_step({}); }, [&] { bench.watched_step(); }}, 24, &all);
  std::vector<double> ratios;
  for (std::size_t index = 0; index < all[0].size(); ++index) ratios.push_back(all[1][index] / all[0][index]);
  fmt::print("| {} | {:.1f} | {:.1f} | {:+.2f}% |\n", share > 0 ? bench.units().patrol_text() : "no patrol", pair[0],
             pair[1], 100 * (median(ratios) - 1));
  bench.units().patrol(0, kBatch * kSequence);
}

/// What measuring errors beside a step costs: the same step with a share and without, as pairs that take turns.
void print_patrol(Bench& bench) {
  fmt::print("\n| patrol | off, ms | on, ms | ratio of the pairs | quartiles |\n|---|---|---|---|---|\n");
  const std::int64_t tokens = kBatch * kSequence;
  for (const double share : {0.05, 1.0}) {
    std::string text;
    const auto step_with = [&](double wanted) {
      return [&bench, &text, tokens, wanted] {
        bench.units().patrol(wanted, tokens);
        if (wanted > 0) text = bench.units().patrol_text();
        bench.plain_step({});
      };
    };
    std::vector<std::vector<double>> all;
    const std::vector<double> pair = times_ms({step_with(0), step_with(share)}, 40, &all);
    std::vector<double> ratios;
    for (std::size_t index = 0; index < all[0].size(); ++index) ratios.push_back(all[1][index] / all[0][index]);
    std::sort(ratios.begin(), ratios.end());
    fmt::print("| {} ({}) | {:.2f} | {:.2f} | {:.4f} | {:.4f} to {:.4f} |\n", share, text, pair[0], pair[1],
               median(ratios), ratios[ratios.size() / 4], ratios[ratios.size() * 3 / 4]);
  }
  bench.units().patrol(0, tokens);
}

void print_recovery(Bench& bench, double low_ms, double high_ms) {
  const std::vector<Unit>& units = bench.units().units();
  double all_cost = 0;
  for (const Unit& unit : units) all_cost += static_cast<double>(unit.cost);
  fmt::print(
      "\n| units in recovery | share of cost | step, ms | of the way from all low to all high |\n|---|---|---|---|\n");
  for (const std::size_t count : {std::size_t{1}, units.size() / 20, units.size() / 10, units.size() / 2}) {
    if (count == 0) continue;
    const std::vector<UnitIndex> high = some_units(count, units.size());
    double cost = 0;
    for (const UnitIndex unit : high) cost += static_cast<double>(units[unit].cost);
    const double time = times_ms({[&] { bench.plain_step(high); }}, 5)[0];
    fmt::print("| {} | {:.1f}% | {:.1f} | {:.1f}% |\n", count, 100 * cost / all_cost, time,
               100 * (time - low_ms) / (high_ms - low_ms));
  }
}

/// Steps in both precisions and of a trial, and what units in recovery cost.
void print_steps_and_recovery(Bench& bench, const std::string& recipe) {
  const std::vector<UnitIndex> everyone = first_units(bench.units().units().size());
  const std::vector<double> pair = times_ms({[&] { bench.plain_step(everyone); }, [&] { bench.plain_step({}); }}, 9);
  forget_peak();
  bench.plain_step(everyone);
  const double high_peak = peak_gib();
  forget_peak();
  bench.plain_step({});
  const double low_peak = peak_gib();
  const double trial_ms = times_ms({[&] { bench.plain_step({}, PassKind::trial); }}, 3)[0];
  forget_peak();
  bench.plain_step({}, PassKind::trial);
  const double trial_peak = peak_gib();
  fmt::print("| step | ms | against bf16 | peak memory, GiB |\n|---|---|---|---|\n");
  fmt::print("| bf16 (all units high) | {:.1f} | 1.00 x | {:.1f} |\n", pair[0], high_peak);
  fmt::print("| {} | {:.1f} | {:.2f} x | {:.1f} |\n", recipe, pair[1], pair[0] / pair[1], low_peak);
  fmt::print("| trial: high, each low path beside it | {:.1f} | {:.2f} x | {:.1f} |\n", trial_ms, pair[0] / trial_ms,
             trial_peak);
  print_recovery(bench, pair[1], pair[0]);
}

/// Median microseconds of the host.
double host_us(const std::function<void()>& work) {
  std::vector<double> times;
  for (int run = 0; run < 21; ++run) {
    const auto start = std::chrono::steady_clock::now();
    work();
    times.push_back(1e6 * std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return median(times);
}

/// Where the host's time in the gate goes.
void print_parts(Bench& bench) {
  const auto pinned = at::TensorOptions().dtype(at::kByte).pinned_memory(true);
  fmt::print(
      "Its parts, microseconds: norms {:.1f}, update {:.1f}, lists {:.1f}, measurements sent {:.1f}; pinned memory "
      "from torch would be {:.1f}, an event {:.1f}.\n",
      host_us([&] { bench.norms_alone(); }), host_us([&] { bench.update_alone(); }),
      host_us([&] { bench.lists_alone(); }), host_us([&] { bench.units().send_measurements(); }),
      host_us([&] { at::empty({1 << 16}, pinned); }), host_us([] { c10::Event event(at::kCUDA); }));
}

/// 280 units and a device that is busy with one long product: how long the host is in the gate's part of a step.
void print_gate_alone(const std::string& recipe) {
  models::LlamaConfig config;
  config.hidden = 64;
  config.intermediate = 128;
  config.layers = 40;
  config.heads = config.key_value_heads = 2;
  config.max_positions = 64;
  Bench bench(config, recipe);
  const at::Tensor large = at::zeros({24576, 24576}, at::TensorOptions().dtype(at::kBFloat16).device(kDevice));
  at::Tensor product = at::mm(large, large);
  const c10::impl::VirtualGuardImpl guard(at::kCUDA);
  constexpr int kSteps = 21;
  const auto busy_steps = [&] {
    int still_busy = 0;
    for (int step = 0; step < kSteps; ++step) {
      c10::Event done(at::kCUDA, c10::EventFlag::PYTORCH_DEFAULT);
      bench.watched_step([&] {
        guard.synchronizeDevice(0);
        at::mm_out(product, large, large);
        done.record(guard.getStream(kDevice));
      });
      still_busy += done.query() ? 0 : 1;
    }
    return still_busy;
  };
  const int still_busy = busy_steps();
  fmt::print(
      "\nThe gate's part of a step (norms, signals, alarm, gate, update, copies) with {} units, the device busy with "
      "a long product: the host is through in {:.1f} microseconds (median); in {} of {} steps the product was still "
      "running when the step, the report of the one before included, was over.\n",
      bench.units().units().size(), bench.gate_microseconds(), still_busy, kSteps);
  bench.look_first(true);
  busy_steps();
  fmt::print("Where somebody has looked at the gradients just before ({:.1f} microseconds): {:.1f} microseconds.\n",
             bench.look_microseconds(), bench.gate_microseconds());
  print_parts(bench);
}

/// The step of a model whose backward casts weights again.
void print_recast(std::int64_t layers, const std::string& recipe) {
  Bench bench(wide_config(layers), recipe, true);
  const std::vector<UnitIndex> everyone = first_units(bench.units().units().size());
  const std::vector<double> pair = times_ms({[&] { bench.plain_step(everyone); }, [&] { bench.plain_step({}); }}, 9);
  forget_peak();
  bench.plain_step({});
  fmt::print("\nWhere backward casts weights again: {:.1f} ms, {:.2f} x bf16, peak {:.1f} GiB.\n", pair[1],
             pair[0] / pair[1], peak_gib());
}

int measure(std::int64_t layers, const std::string& recipe, const std::string& part) {
  if (!kernels::available()) {
    fmt::print(stderr, "gnmr_gpu_step: no CUDA device\n");
    return EXIT_FAILURE;
  }
  if (part != "patrol") print_gate_alone(recipe);
  if (part == "gate") return EXIT_SUCCESS;
  if (part.empty()) print_recast(layers, recipe);
  Bench bench(wide_config(layers), recipe);
  fmt::print(
      "\nA step of {} layers as wide as LLaMA-2 13B ({:.2f} G parameters, bfloat16 with float32 master and moments), "
      "{} x {} tokens, {}, {} units\n\n",
      layers, static_cast<double>(bench.parameters()) * 1e-9, kBatch, kSequence, recipe, bench.units().units().size());
  if (part == "patrol") {
    print_patrol(bench);
    return EXIT_SUCCESS;
  }
  if (part != "pairs") print_steps_and_recovery(bench, recipe);
  fmt::print("\n| GNMR | off, ms | on, ms | median of the pairs |\n|---|---|---|---|\n");
  for (const double share : {0.0, 0.002, 0.05}) print_on_and_off(bench, share);
  fmt::print("\n{} trials were called\n", bench.trials());
  print_patrol(bench);
  return EXIT_SUCCESS;
}

}  // namespace

int main(int count, char** arguments) {
  try {
    return measure(count > 1 ? std::atoll(arguments[1]) : 12, count > 2 ? arguments[2] : "fp8-tensorwise",
                   count > 3 ? arguments[3] : "");
  } catch (const std::exception& error) {
    fmt::print(stderr, "gnmr_gpu_step: {}\n", error.what());
    return EXIT_FAILURE;
  }
}
