// SPDX-License-Identifier: Apache-2.0
#include "gnmr/torch/switchable_scale.h"

#include <torch/csrc/autograd/custom_function.h>

#include "gnmr/low/device_numbers.h"
#include "gnmr/low/operand.h"
#include "gnmr/torch/front_end.h"
#include "gnmr/torch/paths_holder.h"

namespace gnmr::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

/// One pass of a scale.
struct ScalePass {
  LinearPaths& paths;

  bool runs_low(Product product) const { return paths.recipe != nullptr && paths.low[low::index_of(product)]; }

  /// Whether the low path is run: for its result, or beside the high one.
  bool makes_low(Product product) const { return runs_low(product) || paths.compares_high(); }

  void observe(Product product, std::size_t place, const at::Tensor& tensor) const {
    low::observe(front_end(), paths, product, place, matrix_of(tensor));
  }

  /// An operand as the low path has it: numbers, in the tensor's type.
  at::Tensor quantized(const low::OperandUse& use, const at::Tensor& tensor) const {
    const low::LowOperand made = low::low_operand(front_end(), paths, use, matrix_of(tensor));
    const low::SumOver sum_over = low::sums_over(use.product)[use.place];
    return tensor_of(low::values_for(front_end(), made, sum_over)).to(tensor.scalar_type());
  }

  /// The result on the path that is in force. Both are compared where that is asked for: elements are cheap, so a
  /// patrol compares all of them.
  template <class Low, class High>
  at::Tensor result(Product product, const Low& make_low, const High& make_high) const {
    const bool is_low = runs_low(product);
    if (!makes_low(product)) return make_high();
    const at::Tensor from_low = low_result(product, make_low());
    if (is_low && !paths.compares_low()) return from_low;
    const at::Tensor from_high = make_high();
    low::ErrorPlace place{.sums = &paths.measured[low::index_of(product)].error};
    const low::Matrix on = matrix_of(from_high);
    if (on.place == low::Place::device) {
      place = {.on_device = low::numbers_of(front_end(), paths, on).error(low::index_of(product))};
    }
    low::add_error(front_end(), matrix_of(from_low), on, place);
    return is_low ? from_low : from_high;
  }

  at::Tensor low_result(Product product, const at::Tensor& made) const {
    return tensor_of(low::after_gemm(paths, product, matrix_of(made)));
  }

  void measure(Product product, const at::Tensor& gradient) const {
    if (!paths.measure_products || !paths.observing) return;
    ProductMeasurement& measured = paths.measured[low::index_of(product)];
    const low::Matrix matrix = matrix_of(gradient);
    if (matrix.place == low::Place::device) {
      low::add_square(front_end(), matrix, low::numbers_of(front_end(), paths, matrix).square(product));
    } else {
      measured.squared_norm += low::squared_norm(front_end(), matrix);
    }
    measured.sampled = true;
  }
};

/// The three products, of [tokens, channels] and [1, channels].
class ScaleFunction : public torch::autograd::Function<ScaleFunction> {
 public:
  static Variable forward(AutogradContext* context, const Variable& given_input, const Variable& given_weight,
                          const Variable& bias, const c10::intrusive_ptr<PathsHolder>& holder) {
    const ScalePass pass{*holder->paths};
    const at::Tensor input = given_input.reshape({-1, given_weight.numel()});
    const at::Tensor weight = given_weight.view({1, -1});
    pass.observe(Product::forward, 0, input);
    pass.observe(Product::forward, 1, weight);
    const at::Tensor result = pass.result(
        Product::forward,
        [&] { return pass.quantized(low::kInputUse, input) * pass.quantized(low::kWeightUse, weight); },
        [&] { return input * weight; });
    context->save_for_backward({input, weight});
    context->saved_data["paths"] = c10::IValue::make_capsule(holder);
    return (result + bias).view(given_input.sizes());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto holder = c10::static_intrusive_pointer_cast<PathsHolder>(context->saved_data["paths"].toCapsule());
    const ScalePass pass{*holder->paths};
    const variable_list kept = context->get_saved_variables();
    const at::Tensor& input = kept[0];
    const at::Tensor& weight = kept[1];
    const at::Tensor gradient = gradients[0].reshape(input.sizes()).contiguous();
    const bool wants_input = context->needs_input_grad(0);
    pass.observe(wants_input ? Product::input_gradient : Product::weight_gradient, 0, gradient);
    pass.measure(Product::forward, gradient);
    at::Tensor input_gradient;
    if (wants_input) {
      input_gradient = pass.result(
          Product::input_gradient,
          [&] { return pass.quantized(low::kGradientUse, gradient) * pass.quantized(low::kWeightUse, weight); },
          [&] { return gradient * weight; });
      pass.measure(Product::input_gradient, input_gradient);
      input_gradient = input_gradient.view(gradients[0].sizes());
    }
    at::Tensor weight_gradient;
    if (context->needs_input_grad(1)) {
      constexpr low::OperandUse kGradient{.product = Product::weight_gradient, .place = 0};
      constexpr low::OperandUse kInput{.product = Product::weight_gradient, .place = 1};
      weight_gradient = pass.result(
          Product::weight_gradient,
          [&] { return (pass.quantized(kGradient, gradient) * pass.quantized(kInput, input)).sum(0, true); },
          [&] { return (gradient * input).sum(0, true); });
      pass.measure(Product::weight_gradient, weight_gradient);
      weight_gradient = weight_gradient.view(-1);
    }
    at::Tensor bias_gradient;
    if (context->needs_input_grad(2)) bias_gradient = gradient.sum(0);
    return {input_gradient, weight_gradient, bias_gradient, Variable()};
  }
};

}  // namespace

SwitchableScaleImpl::SwitchableScaleImpl(std::int64_t channels)
    : SwitchableLinearImpl(channels, 1, at::IntArrayRef{channels}, at::IntArrayRef{channels}) {
  reset();
}

void SwitchableScaleImpl::reset() {
  const at::NoGradGuard no_gradients;
  weight.fill_(1);
  bias.zero_();
}

at::Tensor SwitchableScaleImpl::forward(const at::Tensor& input) {
  if (paths().recipe == nullptr && !paths().measure_products) return input * weight + bias;
  return ScaleFunction::apply(input, weight, bias, c10::static_intrusive_pointer_cast<PathsHolder>(holder()));
}

}  // namespace gnmr::nn
