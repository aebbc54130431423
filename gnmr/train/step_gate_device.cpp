// SPDX-License-Identifier: Apache-2.0
// The gate on a CUDA device: norms, signals, alarm and update follow each other on the stream, and nothing waits. What
// became of them is copied behind an event, and read a step later.
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <utility>

#include "gnmr/core/error.h"
#include "gnmr/kernels/norms.h"
#include "gnmr/kernels/signals.h"
#include "gnmr/kernels/unit_gather.h"
#include "gnmr/torch/device_stream.h"
#include "gnmr/torch/gradient_squares.h"
#include "gnmr/train/step_gate.h"
#include "gnmr/train/step_gate_signals.h"

namespace gnmr::train {
namespace {

/// What a step leaves on the device; the parameters' sums of squares follow it.
struct GateResults {
  kernels::Gate gate;
  double loss;
  kernels::StepAlarm alarm;
};
static_assert(sizeof(GateResults) % sizeof(double) == 0);

/// The same on its way to the host, in one copy.
class DevicePending : public PendingNumbers {
 public:
  DevicePending(const at::Tensor& results, const std::shared_ptr<nn::PinnedPool>& pool, nn::RecoverableUnits& units)
      : copies_({results}, pool), measurements_(units.send_measurements()), units_(units) {}

  void complete(PassResult& pass) override {
    const at::Tensor& results = copies_.wait().front();
    const auto* const bytes = results.const_data_ptr<std::uint8_t>();
    GateResults gate{};
    std::memcpy(&gate, bytes, sizeof gate);
    pass.squares.parameters.resize((static_cast<std::size_t>(results.numel()) - sizeof gate) / sizeof(double));
    std::memcpy(pass.squares.parameters.data(), bytes + sizeof gate, pass.squares.parameters.size() * sizeof(double));
    units_.take_measurements(measurements_.get());
    pass.loss = gate.loss;
    pass.held = gate.alarm.held != 0;
    pass.update = {
        .grad_norm = gate.gate.total_norm, .clip = double{gate.gate.coefficient}, .applied = gate.gate.apply != 0};
  }

 private:
  nn::PinnedCopies copies_;
  std::unique_ptr<nn::RecoverableUnits::Measurements> measurements_;
  nn::RecoverableUnits& units_;
};

at::Tensor bytes_on(const c10::Device& device, std::size_t count) {
  return at::zeros({static_cast<std::int64_t>(count)}, at::TensorOptions().dtype(at::kByte).device(device));
}

class DeviceGate : public StepGate {
 public:
  explicit DeviceGate(const DeviceGateParts& parts)
      : parts_(parts),
        device_(parts.units.parameters().front().device()),
        settings_(signal_settings(parts.options, parts.selector)),
        signals_(unit_count(), settings_),
        norms_(at::empty({std::int64_t{unit_count()}}, at::TensorOptions().dtype(at::kDouble).device(device_))),
        sampled_(bytes_on(device_, unit_count())),
        results_(bytes_on(device_, sizeof(GateResults) + parts.units.parameters().size() * sizeof(double))),
        loss_(results_.narrow(0, offsetof(GateResults, loss), sizeof(double)).view(at::kDouble)) {}

  void load(const ControllerState& state) override {
    signals_.load(kernels::memory_of(state, settings_), nn::current_stream(device_));
  }

  void pass(PassNumbers& numbers, const GateStep& step) override {
    void* const stream = nn::current_stream(device_);
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& parameter : parts_.units.parameters()) gradients.push_back(parameter.grad());
    auto* const results = static_cast<GateResults*>(results_.mutable_data_ptr());
    auto* const sums = reinterpret_cast<double*>(results + 1);
    if (!squares_.measure_on_device(gradients, sums)) {
      throw Error("[gate] expected gradients in float32, bfloat16 or float16 on one CUDA device");
    }
    loss_.copy_(numbers.loss.view({1}), /*non_blocking=*/true);
    kernels::Gate* const gate = &results->gate;
    const double largest = parts_.largest_norm > 0 ? parts_.largest_norm : std::numeric_limits<double>::infinity();
    squares_.norms().clip(sums, largest, {.gate = gate}, stream);
    gather_.set(parts_.units.norm_lists(numbers.rest.squares.has_gradient), stream);
    const nn::DeviceNumbers* const measured = parts_.units.device_numbers();
    gather_.run(sums, static_cast<std::uint32_t>(gradients.size()), measured != nullptr ? measured->squares() : nullptr,
                norms_.mutable_data_ptr<double>(), sampled_.mutable_data_ptr<std::uint8_t>(), stream);
    if (!std::equal(flags_.begin(), flags_.end(), step.flags.begin(), step.flags.end())) {
      flags_.assign(step.flags.begin(), step.flags.end());
      signals_.set_flags(flags_, stream);
    }
    signals_.observe({.norms = norms_.const_data_ptr<double>(), .sampled = sampled_.const_data_ptr<std::uint8_t>()},
                     kernel_hold(step.hold), {.gate = gate, .alarm = &results->alarm}, stream);
    parts_.optimizer.step_behind(gate, step.learning_rate);
    numbers.pending = std::make_shared<DevicePending>(results_, pool_, parts_.units);
  }

 private:
  std::uint32_t unit_count() const { return static_cast<std::uint32_t>(parts_.units.units().size()); }

  DeviceGateParts parts_;
  c10::Device device_;
  kernels::SignalSettings settings_;
  kernels::UnitSignals signals_;
  kernels::UnitGather gather_;
  nn::GradientSquares squares_;
  std::shared_ptr<nn::PinnedPool> pool_ = std::make_shared<nn::PinnedPool>();
  at::Tensor norms_;    // one a unit
  at::Tensor sampled_;  // one a unit
  at::Tensor results_;  // GateResults, and the parameters' sums
  at::Tensor loss_;     // a part of it
  std::vector<std::uint8_t> flags_;
};

}  // namespace

std::unique_ptr<StepGate> make_device_gate(const DeviceGateParts& parts) { return std::make_unique<DeviceGate>(parts); }

}  // namespace gnmr::train
