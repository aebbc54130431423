// SPDX-License-Identifier: Apache-2.0
#include "gnmr/torch/switchable_linear.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "gnmr/low/linear.h"
#include "gnmr/torch/front_end.h"
#include "gnmr/torch/paths_holder.h"
#include "gnmr/torch/shared_input.h"

namespace gnmr::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

/// gnmr/low/linear.h as an autograd function.
class LinearFunction : public torch::autograd::Function<LinearFunction> {
 public:
  static Variable forward(AutogradContext* context, const Variable& input, const Variable& weight,
                          const std::optional<Variable>& bias, const c10::intrusive_ptr<PathsHolder>& holder) {
    SharedInput* const shared = SharedInput::of(input);
    const low::ForwardResult made =
        low::forward(front_end(), *holder->paths, matrix_of(input.reshape({-1, weight.size(1)})), matrix_of(weight),
                     {.shared = shared != nullptr ? &shared->operands() : nullptr});
    const at::Tensor result = tensor_of(made.output);
    if (bias) result.add_(*bias);
    variable_list kept;
    kept.reserve(low::Saved::kParts);
    for (const low::Matrix& part : made.saved.parts()) kept.push_back(tensor_of(part));
    context->save_for_backward(std::move(kept));
    context->saved_data["paths"] = c10::IValue::make_capsule(holder);
    context->saved_data["has_bias"] = bias.has_value();
    std::vector<std::int64_t> shape = input.sizes().vec();
    context->saved_data["input_shape"] = shape;
    shape.back() = weight.size(0);
    return result.view(shape);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto holder = c10::static_intrusive_pointer_cast<PathsHolder>(context->saved_data["paths"].toCapsule());
    LinearPaths& paths = *holder->paths;
    const variable_list kept = context->get_saved_variables();
    std::array<low::Matrix, low::Saved::kParts> parts;
    std::transform(kept.begin(), kept.end(), parts.begin(), matrix_of);
    const at::Tensor gradient = gradients[0].reshape({-1, kept.front().size(0)});
    const low::Gradients made =
        low::backward(front_end(), paths, low::Saved::from_parts(paths.recipe.get(), parts), matrix_of(gradient),
                      context->needs_input_grad(0), context->needs_input_grad(1));
    at::Tensor input_gradient = tensor_of(made.input);
    if (input_gradient.defined()) {
      input_gradient = input_gradient.view(context->saved_data["input_shape"].toIntVector());
    }
    at::Tensor bias_gradient;
    if (context->saved_data["has_bias"].toBool() && context->needs_input_grad(2)) bias_gradient = gradient.sum(0);
    return {input_gradient, tensor_of(made.weight), bias_gradient, Variable()};
  }
};

}  // namespace

SwitchableLinearImpl::SwitchableLinearImpl(std::int64_t in_features, std::int64_t out_features, bool with_bias)
    : SwitchableLinearImpl(in_features, out_features, {out_features, in_features},
                           with_bias ? at::IntArrayRef(out_features) : at::IntArrayRef()) {}

SwitchableLinearImpl::SwitchableLinearImpl(std::int64_t in_features, std::int64_t out_features,
                                           at::IntArrayRef weight_shape, at::IntArrayRef bias_shape)
    : in_features_(in_features), out_features_(out_features), paths_(std::make_shared<LinearPaths>()) {
  weight = register_parameter("weight", at::empty(weight_shape));
  if (!bias_shape.empty()) bias = register_parameter("bias", at::empty(bias_shape));
  holder_ = c10::make_intrusive<PathsHolder>(paths_);
}

at::Tensor SwitchableLinearImpl::forward(const at::Tensor& input) {
  const bool plain = paths_->recipe == nullptr && !paths_->measure_products && !paths_->save_low;
  if (plain) return at::linear(input, weight, bias);
  const std::optional<Variable> added = bias.defined() ? std::optional(bias) : std::nullopt;
  return LinearFunction::apply(input, weight, added, c10::static_intrusive_pointer_cast<PathsHolder>(holder_));
}

}  // namespace gnmr::nn
