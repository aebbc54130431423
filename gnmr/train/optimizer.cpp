// SPDX-License-Identifier: Apache-2.0
#include "gnmr/train/optimizer.h"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "gnmr/core/error.h"
#include "gnmr/kernels/device.h"
#include "gnmr/torch/device_stream.h"

namespace gnmr::train {
namespace {

std::string shape_text(const at::Tensor& tensor) {
  std::string text = "[";
  for (const std::int64_t size : tensor.sizes()) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

}  // namespace

bool decays(const std::string& name, const at::Tensor& parameter) {
  return parameter.dim() >= 2 && name.find("embed") == std::string::npos;
}

std::vector<OptimizedParameter> optimized_parameters(const torch::nn::Module& model) {
  std::vector<OptimizedParameter> parameters;
  for (const auto& item : model.named_parameters()) {
    if (!item.value().requires_grad()) continue;
    parameters.push_back({.name = item.key(), .tensor = item.value(), .decays = decays(item.key(), item.value())});
  }
  return parameters;
}

AdamW::AdamW(std::vector<OptimizedParameter> parameters, const AdamWSettings& settings)
    : parameters_(std::move(parameters)), settings_(settings) {
  const at::NoGradGuard no_gradients;
  std::set<std::string> names;
  for (const OptimizedParameter& parameter : parameters_) {
    if (!names.insert(parameter.name).second) {
      throw Error("[optimizer] the parameter `" + parameter.name + "` is there twice");
    }
    const auto options = parameter.tensor.options().dtype(at::kFloat).requires_grad(false);
    means_.push_back(at::zeros(parameter.tensor.sizes(), options));
    squares_.push_back(at::zeros(parameter.tensor.sizes(), options));
    steps_.push_back(at::zeros({}, options));
    masters_.push_back(parameter.tensor.scalar_type() == at::kBFloat16 ? parameter.tensor.detach().to(at::kFloat)
                                                                       : at::Tensor());
  }
  use_kernels();
}

AdamW::~AdamW() = default;

void AdamW::use_kernels() {
  const auto fits = [](const OptimizedParameter& parameter) {
    const at::Tensor& tensor = parameter.tensor;
    return tensor.is_cuda() && tensor.is_contiguous() &&
           (tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kBFloat16);
  };
  const bool all_fit = !parameters_.empty() && std::all_of(parameters_.begin(), parameters_.end(), fits);
  if (all_fit && kernels::available()) {
    kernels_ = std::make_unique<kernels::AdamW>();
    gate_ = at::empty({static_cast<std::int64_t>(sizeof(kernels::Gate))},
                      parameters_[0].tensor.options().dtype(at::kByte).requires_grad(false));
    return;
  }
  for (const OptimizedParameter& parameter : parameters_) {
    if (parameter.tensor.scalar_type() != at::kFloat) {
      throw Error("[optimizer] `" + parameter.name + "`: expected float32 (bfloat16 needs a CUDA device)");
    }
  }
}

const std::vector<kernels::AdamWTensor>& AdamW::kernel_tensors() {
  kernel_tensors_.clear();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& tensor = parameters_[i].tensor;
    const at::Tensor& gradient = tensor.grad();
    if (gradient.defined() && !gradient.is_contiguous()) {
      throw Error("[optimizer] `" + parameters_[i].name + "`: expected a contiguous gradient");
    }
    kernel_tensors_.push_back({.parameter = tensor.mutable_data_ptr(),
                               .gradient = gradient.defined() ? gradient.const_data_ptr() : nullptr,
                               .mean = means_[i].mutable_data_ptr<float>(),
                               .square = squares_[i].mutable_data_ptr<float>(),
                               .steps = steps_[i].mutable_data_ptr<float>(),
                               .master = masters_[i].defined() ? masters_[i].mutable_data_ptr<float>() : nullptr,
                               .count = static_cast<std::uint64_t>(tensor.numel()),
                               .parameter_type = *nn::kernel_type(tensor),
                               .gradient_type = *nn::kernel_type(gradient.defined() ? gradient : tensor),
                               .weight_decay = parameters_[i].decays ? settings_.weight_decay : 0.0});
  }
  return kernel_tensors_;
}

kernels::AdamWSettings AdamW::kernel_settings(double learning_rate) const {
  return {
      .learning_rate = learning_rate, .beta1 = settings_.beta1, .beta2 = settings_.beta2, .epsilon = settings_.epsilon};
}

void AdamW::step_behind(const kernels::Gate* gate, double learning_rate) {
  kernels_->step(kernel_tensors(), kernel_settings(learning_rate), gate,
                 nn::current_stream(parameters_[0].tensor.device()));
}

void AdamW::update(bool decay, double learning_rate, const std::optional<at::Tensor>& gradient_scale) {
  std::vector<at::Tensor> tensors;
  std::vector<at::Tensor> gradients;
  std::vector<at::Tensor> means;
  std::vector<at::Tensor> squares;
  std::vector<at::Tensor> steps;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& gradient = parameters_[i].tensor.grad();
    if (parameters_[i].decays != decay || !gradient.defined()) continue;
    tensors.push_back(parameters_[i].tensor);
    gradients.push_back(gradient);
    means.push_back(means_[i]);
    squares.push_back(squares_[i]);
    steps.push_back(steps_[i]);
  }
  if (tensors.empty()) return;
  at::_foreach_add_(steps, 1);
  at::_fused_adamw_(tensors, gradients, means, squares, {}, steps, learning_rate, settings_.beta1, settings_.beta2,
                    decay ? settings_.weight_decay : 0.0, settings_.epsilon, /*amsgrad=*/false, /*maximize=*/false,
                    gradient_scale);
}

void AdamW::step(double learning_rate, double clip_coefficient) {
  if (!(clip_coefficient > 0) || !std::isfinite(clip_coefficient)) {
    throw Error("[optimizer] expected a clip coefficient above 0, got " + std::to_string(clip_coefficient));
  }
  if (parameters_.empty()) return;
  const at::NoGradGuard no_gradients;
  if (has_kernels()) {
    const kernels::Gate open{.total_norm = 0, .coefficient = static_cast<float>(clip_coefficient), .apply = 1};
    at::Tensor bytes = at::empty({gate_.numel()}, at::TensorOptions().dtype(at::kByte).pinned_memory(true));
    std::memcpy(bytes.mutable_data_ptr(), &open, sizeof open);
    gate_.copy_(bytes, /*non_blocking=*/true);
    step_behind(static_cast<const kernels::Gate*>(gate_.const_data_ptr()), learning_rate);
    return;
  }
  std::optional<at::Tensor> scale;
  // The kernel divides by the scale, which is a float: what a float cannot hold leaves nothing of a gradient anyway.
  if (clip_coefficient != 1) {
    const double divisor = std::min(1 / clip_coefficient, double{std::numeric_limits<float>::max()});
    scale = at::full({}, divisor, parameters_[0].tensor.options().dtype(at::kFloat).requires_grad(false));
  }
  update(true, learning_rate, scale);
  update(false, learning_rate, scale);
}

models::NamedTensors AdamW::state() const {
  models::NamedTensors state;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const std::string& name = parameters_[i].name;
    state.emplace_back(name + ".exp_avg", means_[i]);
    state.emplace_back(name + ".exp_avg_sq", squares_[i]);
    state.emplace_back(name + ".step", steps_[i]);
    if (masters_[i].defined()) state.emplace_back(name + ".master", masters_[i]);
  }
  return state;
}

void AdamW::load_state(const models::NamedTensors& state) {
  std::map<std::string_view, const at::Tensor*> given;
  for (const auto& [name, tensor] : state) given[name] = &tensor;
  const models::NamedTensors mine = this->state();
  for (const auto& [name, tensor] : mine) {
    const auto found = given.find(name);
    if (found == given.end()) throw Error("[optimizer] the state has no `" + name + "`");
    if (found->second->sizes() != tensor.sizes()) {
      throw Error("[optimizer] `" + name + "`: expected shape " + shape_text(tensor) + ", got " +
                  shape_text(*found->second));
    }
  }
  if (given.size() != mine.size()) {
    throw Error("[optimizer] expected " + std::to_string(mine.size()) + " tensors, got " +
                std::to_string(given.size()) + ": some belong to no parameter");
  }
  const at::NoGradGuard no_gradients;
  for (const auto& [name, tensor] : mine) tensor.copy_(*given.at(name));
}

}  // namespace gnmr::train
