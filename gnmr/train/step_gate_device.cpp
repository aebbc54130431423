// SPDX-License-Identifier: Apache-2.0
// The gate on a CUDA device: norms, signals, alarm and update follow each other on the stream, and nothing waits. What
// became of them is copied behind an event, and read a step later.
#include <algorithm>
#include <limits>
#include <utility>

#include "gnmr/core/error.h"
#include "gnmr/core/signal_rules.h"
#include "gnmr/kernels/gated_step.h"
#include "gnmr/torch/device_stream.h"
#include "gnmr/train/step_gate.h"

namespace gnmr::train {
namespace {

/// The rules of the gate's alarm. Where other selectors decide it never closes.
kernels::SignalSettings signal_settings(const Options& options, Selector selector) {
  const bool by_trial = selector == Selector::trial;
  return {.rules = signal_rules(options),
          .window = static_cast<std::uint32_t>(options.window),
          .alarm = {.common_share = options.common_share, .selector = by_trial ? Selector::trial : Selector::norms}};
}

/// The numbers of a step on their way to the host.
class DevicePending : public PendingNumbers {
 public:
  DevicePending(const kernels::GatedStep& gated, kernels::StepTicket ticket, nn::RecoverableUnits& units)
      : gated_(gated), ticket_(ticket), measurements_(units.send_other_measurements()), units_(units) {}

  void complete(BatchNumbers& numbers) override {
    const kernels::StepNumbers measured = gated_.read(ticket_);
    numbers.squares.assign(measured.sums.begin(), measured.sums.end());
    units_.take_measurements(measurements_.get(), measured.more);
    numbers.loss = measured.loss;
    numbers.held = measured.alarm.held != 0;
    numbers.update = {.grad_norm = measured.gate.total_norm,
                      .clip = double{measured.gate.coefficient},
                      .applied = measured.gate.apply != 0};
  }

 private:
  const kernels::GatedStep& gated_;
  kernels::StepTicket ticket_;
  std::unique_ptr<nn::RecoverableUnits::Measurements> measurements_;
  nn::RecoverableUnits& units_;
};

class DeviceGate : public StepGate {
 public:
  explicit DeviceGate(const DeviceGateParts& parts)
      : parts_(parts),
        device_(parts.units.parameters().front().device()),
        settings_(signal_settings(parts.options, parts.selector)),
        gated_({.parameters = static_cast<std::uint32_t>(parts.units.parameters().size()),
                .units = static_cast<std::uint32_t>(parts.units.units().size()),
                .signals = settings_,
                .max_norm = parts.largest_norm > 0 ? parts.largest_norm : std::numeric_limits<double>::infinity()}) {
    std::vector<std::uint32_t> gradient_of_tensor;
    const std::vector<at::Tensor>& all = parts_.units.parameters();
    for (const OptimizedParameter& optimized : parts_.optimizer.parameters()) {
      const auto is_it = [&](const at::Tensor& parameter) { return parameter.is_same(optimized.tensor); };
      const auto found = std::find_if(all.begin(), all.end(), is_it);
      if (found == all.end()) throw Error("[gate] `" + optimized.name + "` is no parameter of the model");
      gradient_of_tensor.push_back(static_cast<std::uint32_t>(found - all.begin()));
    }
    gated_.set_tensors(parts_.optimizer.kernel_tensors(), gradient_of_tensor, nn::current_stream(device_));
    gated_.set_errors(parts_.units.error_lists(), nn::kProductCount, nn::current_stream(device_));
  }

  void load(const Controller& controller) override {
    gated_.signals().load(kernels::memory_of(controller.save(), settings_), nn::current_stream(device_));
  }

  void pass(BatchNumbers& numbers, const GateStep& step) override {
    find_gradients();
    const std::vector<std::uint8_t>& has_gradient = numbers.has_gradient;
    if (has_gradient != has_gradient_ || parts_.units.has_norms_of_products()) {
      lists_ = parts_.units.norm_lists(has_gradient);
      has_gradient_ = has_gradient;
    }
    parts_.units.finish_errors(numbers.refresh);
    const low::DeviceNumbers* const measured = parts_.units.device_numbers();
    kernels::DeviceBytes more;
    if (measured != nullptr) more = {measured->bytes().data(), measured->bytes().size()};
    const kernels::StepTicket ticket = gated_.run({.gradients = gradients_,
                                                   .lists = lists_,
                                                   .more_squares = measured != nullptr ? measured->squares() : nullptr,
                                                   .loss = numbers.device_loss.const_data_ptr<double>(),
                                                   .flags = step.flags,
                                                   .totals = measured != nullptr ? measured->errors() : nullptr,
                                                   .limits = step.error_limits,
                                                   .hold = step.hold,
                                                   .optimizer = parts_.optimizer.kernel_settings(step.learning_rate),
                                                   .more = more},
                                                  nn::current_stream(device_));
    numbers.pending = std::make_shared<DevicePending>(gated_, ticket, parts_.units);
  }

 private:
  /// Where the gradients are in this step. Their tensors are new, and after a backward pass none of them is in the
  /// host's cache: asked for one after another they would take longer than all the rest of the gate.
  void find_gradients() {
    constexpr std::uintptr_t kLine = 64;
    const std::vector<at::Tensor>& parameters = parts_.units.parameters();
    for (const at::Tensor& parameter : parameters) {
      const auto* const gradient = reinterpret_cast<const std::byte*>(parameter.grad().unsafeGetTensorImpl());
      for (std::uintptr_t byte = 0; byte < sizeof(c10::TensorImpl); byte += kLine) __builtin_prefetch(gradient + byte);
    }
    for (const at::Tensor& parameter : parameters) {
      const at::Tensor& gradient = parameter.grad();
      if (gradient.defined()) __builtin_prefetch(gradient.storage().unsafeGetStorageImpl());
    }
    gradients_.clear();
    for (const at::Tensor& parameter : parameters) add_gradient(parameter);
  }

  void add_gradient(const at::Tensor& parameter) {
    const at::Tensor& gradient = parameter.grad();
    const at::Tensor& shaped = gradient.defined() ? gradient : parameter;
    const std::optional<kernels::ElementType> type = nn::kernel_type(shaped);
    if (!type || shaped.device() != device_ || shaped.scalar_type() != parameter.scalar_type() ||
        !shaped.is_contiguous()) {
      throw Error("[gate] expected contiguous gradients of their parameters' types on one CUDA device");
    }
    gradients_.push_back({.data = gradient.defined() ? gradient.const_data_ptr() : nullptr,
                          .count = static_cast<std::uint64_t>(shaped.numel()),
                          .type = *type,
                          .unit = static_cast<std::uint32_t>(gradients_.size())});
  }

  DeviceGateParts parts_;
  c10::Device device_;
  kernels::SignalSettings settings_;
  kernels::GatedStep gated_;
  std::vector<kernels::Slice> gradients_;   // of all parameters; reused
  std::vector<std::uint8_t> has_gradient_;  // that the lists were made for
  kernels::UnitLists lists_;
};

}  // namespace

std::unique_ptr<StepGate> make_device_gate(const DeviceGateParts& parts) { return std::make_unique<DeviceGate>(parts); }

}  // namespace gnmr::train
