// SPDX-License-Identifier: Apache-2.0
// The gate on a device: whether it closes where that of the host does, how long the host is busy with it, and what it
// waits for. Without a GPU there is nothing to do.
#include "gnmr/train/step_gate.h"

#include <ATen/ops/mm.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gnmr/core/host_gate.h"
#include "gnmr/kernels/device.h"
#include "gnmr/models/llama.h"
#include "gnmr/recipes/recipe.h"
#include "gnmr/run/supervisor.h"
#include "torch/cutting_hook.h"

namespace gnmr::train {
namespace {

const c10::Device kDevice(at::kCUDA, 0);
// The step itself is queued in less than 50 microseconds (tests/kernels/check_gated_step.cu); here the host comes from
// a backward pass, and its caches hold neither the gradients' tensors nor the driver.
constexpr double kMostMicroseconds = 250;

/// A model of 280 linear layers in FP8, and the loop of a run with lag 1 around it.
class WatchedModel {
 public:
  WatchedModel()
      : model_(make_model()),
        units_(*model_, std::make_shared<const recipes::Recipe>(recipes::load_recipe("fp8-tensorwise")), {}),
        optimizer_(optimized_parameters(*model_), {}),
        supervisor_(units_.units(), supervision(), {}),
        gate_(make_device_gate({.optimizer = optimizer_,
                                .units = units_,
                                .options = supervisor_.controller().options(),
                                .selector = supervisor_.controller().selector(),
                                .largest_norm = 1.0})),
        host_gate_(supervisor_.controller()) {
    gate_->load(supervisor_.controller());
    units_.patrol(100, 2 * 64);  // all layers: so small a product costs less than its check
    tokens_ =
        at::randint(0, model_->config().vocabulary, {2, 64}, at::TensorOptions().dtype(at::kLong).device(kDevice));
  }

  std::size_t unit_count() const { return units_.units().size(); }

  /// A step; `around` is called with what queues everything behind the gradients.
  void step(const std::function<void(const std::function<void()>&)>& around) {
    const StepPlan plan = supervisor_.begin(++steps_);
    now_ = {.step = steps_,
            .hold = plan.hold,
            .flags = {plan.gate_flags.begin(), plan.gate_flags.end()},
            .limits = {plan.error_limits.begin(), plan.error_limits.end()}};
    units_.request(supervisor_.high());
    units_.begin_step(plan.batch, plan.pass, plan.again);
    at::Tensor loss = model_->loss(tokens_, tokens_);
    loss.backward();
    BatchNumbers numbers;
    numbers.device_loss = loss.detach().to(at::kDouble);
    for (const at::Tensor& parameter : units_.parameters()) {
      numbers.has_gradient.push_back(parameter.grad().defined() ? 1 : 0);
    }
    around([&] {
      gate_->pass(
          numbers,
          {.hold = plan.hold, .flags = plan.gate_flags, .error_limits = plan.error_limits, .learning_rate = 1e-5});
    });
    units_.end_step();
    for (const at::Tensor& parameter : units_.parameters()) parameter.mutable_grad().reset();
    settle();
    now_.numbers = std::move(numbers);
    unsettled_ = std::move(now_);
  }

  /// In the next step the low path of layer 9 is wrong; null: in none.
  void set_hook(nn::LowPathHook* hook) { units_.set_hook(9, hook); }

  /// Of the steps that were reported: held by the device's gate; held, and one of their errors was above its limit;
  /// those where the host's gate, by the same plan and numbers, said otherwise.
  int held() const { return held_; }
  int held_by_errors() const { return held_by_errors_; }
  const std::vector<std::int64_t>& different() const { return different_; }

 private:
  /// A step that was not reported, and what its gate was given.
  struct Unsettled {
    std::int64_t step = 0;
    HoldRule hold = HoldRule::never;
    std::vector<std::uint8_t> flags;
    std::vector<float> limits;
    BatchNumbers numbers = {};
  };

  static models::Llama make_model() {
    models::LlamaConfig config;
    config.hidden = 64;
    config.intermediate = 128;
    config.layers = 40;
    config.heads = config.key_value_heads = 2;
    config.max_positions = 64;
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

  /// Reports the step before.
  void settle() {
    if (!unsettled_) return;
    BatchNumbers& numbers = unsettled_->numbers;
    numbers.pending->complete(numbers);
    const auto norms = units_.norms(numbers.squares, numbers.has_gradient, units_.product_squares());
    const std::vector<double> errors = units_.errors(units_.error_sums());
    const StepReport report{.step = unsettled_->step,
                            .norms = norms.values,
                            .sampled = norms.sampled,
                            .errors = errors,
                            .held = numbers.held};
    const bool held = host_gate_.holds({.step = unsettled_->step,
                                        .hold = unsettled_->hold,
                                        .gate_flags = unsettled_->flags,
                                        .error_limits = unsettled_->limits},
                                       report);
    if (held != numbers.held) different_.push_back(unsettled_->step);
    supervisor_.report(report, {.loss = numbers.loss});
    held_ += numbers.held ? 1 : 0;
    // Where there are limits there is one for each error.
    const std::vector<float>& limits = unsettled_->limits;
    const bool is_above = !std::equal(limits.begin(), limits.end(), errors.begin(),
                                      [](float limit, double error) { return !(error > static_cast<double>(limit)); });
    held_by_errors_ += numbers.held && is_above ? 1 : 0;
    unsettled_.reset();
  }

  models::Llama model_;
  nn::RecoverableUnits units_;
  AdamW optimizer_;
  run::Supervisor supervisor_;
  std::unique_ptr<StepGate> gate_;
  HostGate host_gate_;
  at::Tensor tokens_;
  std::int64_t steps_ = 0;
  Unsettled now_;
  std::optional<Unsettled> unsettled_;
  int held_ = 0;
  int held_by_errors_ = 0;
  std::vector<std::int64_t> different_;
};

TEST(StepGateDevice, ClosesOnTheErrorsThatCloseTheHostsGate) {
  if (!kernels::available()) GTEST_SKIP() << "no CUDA device";
  WatchedModel model;
  nn::testing::CuttingHook wrong(nn::testing::Site::in_cast, 9);
  for (int step = 1; step <= 40; ++step) {
    const bool is_wrong = step == 20 || step == 21 || step == 30;
    model.set_hook(is_wrong ? &wrong : nullptr);
    model.step([](const std::function<void()>& pass) { pass(); });
  }
  EXPECT_FALSE(wrong.calls.empty());
  EXPECT_EQ(model.different(), std::vector<std::int64_t>());
  EXPECT_GE(model.held_by_errors(), 3);
  EXPECT_LT(model.held(), 10) << "only where something was wrong";
}

TEST(StepGateDevice, HostIsThroughSoonWhileTheDeviceIsBusy) {
  if (!kernels::available()) GTEST_SKIP() << "no CUDA device";
  WatchedModel model;
  ASSERT_EQ(model.unit_count(), 280u);
  const at::Tensor large = at::zeros({16384, 16384}, at::TensorOptions().dtype(at::kBFloat16).device(kDevice));
  at::Tensor product = at::mm(large, large);
  const c10::impl::VirtualGuardImpl guard(at::kCUDA);
  std::vector<double> microseconds;
  for (int step = 0; step < 41; ++step) {
    model.step([&](const std::function<void()>& pass) {
      guard.synchronizeDevice(0);
      at::mm_out(product, large, large);
      c10::Event done(at::kCUDA, c10::EventFlag::PYTORCH_DEFAULT);
      done.record(guard.getStream(kDevice));
      const auto start = std::chrono::steady_clock::now();
      pass();
      microseconds.push_back(1e6 * std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
      if (step < 4) return;  // what is set up at its first use takes its time
      EXPECT_FALSE(done.query()) << "the device was not busy, or the host waited for it";
    });
  }
  std::nth_element(microseconds.begin(), microseconds.begin() + 20, microseconds.end());
  RecordProperty("median_microseconds", std::to_string(microseconds[20]));
  EXPECT_LT(microseconds[20], kMostMicroseconds);
}

/// Runtime calls that wait for the device in what torch's profiler saw of `work`.
std::vector<std::string> waits_of(const std::function<void()>& work, const std::string& file) {
  using namespace torch::profiler::impl;
  const ProfilerConfig profile(ProfilerState::KINETO);
  const std::set<ActivityType> activities{ActivityType::CPU, ActivityType::CUDA};
  torch::autograd::profiler::prepareProfiler(profile, activities);
  torch::autograd::profiler::enableProfiler(profile, activities);
  work();
  torch::autograd::profiler::disableProfiler()->save(file);
  std::ifstream stream(file);
  const std::string trace((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  EXPECT_NE(trace.find("\"cudaGraphLaunch\""), std::string::npos) << "the profiler saw no call of the gate";
  std::vector<std::string> found;
  for (const char* name : {"\"cudaDeviceSynchronize\"", "\"cudaStreamSynchronize\"", "\"cudaEventSynchronize\"",
                           "\"cudaMemcpy\"", "\"cudaStreamWaitEvent\""}) {
    for (std::size_t at = trace.find(name); at != std::string::npos; at = trace.find(name, at + 1)) {
      found.emplace_back(name);
    }
  }
  return found;
}

TEST(StepGateDevice, NothingWaitsBehindTheGradients) {
  if (!kernels::available()) GTEST_SKIP() << "no CUDA device";
  WatchedModel model;
  for (int step = 0; step < 5; ++step) model.step([](const std::function<void()>& pass) { pass(); });
  const std::string file = ::testing::TempDir() + "gnmr_step_gate_trace.json";
  const c10::impl::VirtualGuardImpl guard(at::kCUDA);
  for (int step = 0; step < 3; ++step) {
    model.step([&](const std::function<void()>& pass) {
      guard.synchronizeDevice(0);
      EXPECT_EQ(waits_of(pass, file), std::vector<std::string>());
    });
  }
}

}  // namespace
}  // namespace gnmr::train
