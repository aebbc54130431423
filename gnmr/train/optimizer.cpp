// SPDX-License-Identifier: Apache-2.0
#include "gnmr/train/optimizer.h"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "gnmr/core/error.h"

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
    means_.push_back(at::zeros_like(parameter.tensor));
    squares_.push_back(at::zeros_like(parameter.tensor));
    steps_.push_back(at::zeros({}, parameter.tensor.options().dtype(at::kFloat).requires_grad(false)));
  }
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
