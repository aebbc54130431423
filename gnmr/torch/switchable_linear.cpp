// SPDX-License-Identifier: Apache-2.0
#include "gnmr/torch/switchable_linear.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "gnmr/torch/device_errors.h"
#include "gnmr/torch/device_numbers.h"
#include "gnmr/torch/low_operand.h"
#include "gnmr/torch/operand_cast.h"
#include "gnmr/torch/shared_input.h"
#include "gnmr/torch/squared_norm.h"
#include "gnmr/torch/thin_product.h"

namespace gnmr::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

/// Holds a layer's paths in the autograd graph for as long as a backward may come.
struct PathsHolder : torch::CustomClassHolder {
  explicit PathsHolder(std::shared_ptr<LinearPaths> held) : paths(std::move(held)) {}
  std::shared_ptr<LinearPaths> paths;
};

constexpr std::size_t index_of(Product product) { return static_cast<std::size_t>(product); }

bool compares(const LinearPaths& paths, Comparison how) {
  return paths.comparison == how && paths.observing && paths.recipe != nullptr;
}

/// Compares two results of a product, or of what was saved (`kProductCount`).
void compare_in_full(LinearPaths& paths, std::size_t place, const at::Tensor& low, const at::Tensor& high) {
  if (has_device_numbers(high)) {
    add_error(low, high, numbers_of(paths, high.device()).error(place));
    return;
  }
  add_error(low, high, place < kProductCount ? paths.measured[place].error : paths.saved_error);
}

/// Compares a low result [tokens, n] with what the high path would have made of `left` [tokens, m] and the weight, or
/// the transposed weight.
void patrol_rows(LinearPaths& paths, Product product, const at::Tensor& low, const at::Tensor& left,
                 const at::Tensor& weight, bool is_transposed) {
  const std::uint64_t seed = seed_of(paths, product, 3);
  if (has_device_numbers(low)) {
    add_rows_error(low, left, weight, is_transposed, seed, numbers_of(paths, low.device()).error(index_of(product)));
    return;
  }
  add_rows_error(low, left, is_transposed ? weight.t() : weight, seed, paths.measured[index_of(product)].error);
}

std::uint64_t weight_seed(const LinearPaths& paths) { return seed_of(paths, Product::weight_gradient, 3); }

/// The input's product with the signs that a weight's gradient is projected on.
at::Tensor project_input(const LinearPaths& paths, const at::Tensor& input) {
  if (has_device_numbers(input)) {
    return times_vectors(input, sign_vectors(input.size(1), kWeightProbeVectors, weight_seed(paths), input));
  }
  return thin_product(input, random_signs(input.size(1), kWeightProbeVectors, weight_seed(paths), input));
}

/// Compares a low gradient of the weight with what the high path would have made of `gradient` and the input.
void patrol_weights(LinearPaths& paths, const at::Tensor& low, const at::Tensor& gradient,
                    const at::Tensor& projected_input) {
  constexpr std::size_t kPlace = static_cast<std::size_t>(Product::weight_gradient);
  const std::int64_t columns = low.size(1);
  if (has_device_numbers(low)) {
    add_projected_error(low, sign_vectors(columns, kWeightProbeVectors, weight_seed(paths), low),
                        transposed_times_vectors(gradient, projected_input),
                        numbers_of(paths, low.device()).error(kPlace));
    return;
  }
  const at::Tensor signs = random_signs(columns, kWeightProbeVectors, weight_seed(paths), low);
  add_projected_error(low, signs, thin_product(gradient.t(), projected_input), paths.measured[kPlace].error);
}

/// What saving in 8 bits does to an input.
void compare_saved(LinearPaths& paths, const at::Tensor& input) {
  constexpr std::int64_t kRows = 256;  // that a patrol looks at
  const std::int64_t stride = paths.comparison == Comparison::full ? 1 : 1 + (input.size(0) - 1) / kRows;
  const at::Tensor rows = stride == 1 ? input : input.slice(0, 0, input.size(0), stride).contiguous();
  compare_in_full(paths, kProductCount, restore_from_8_bits(save_in_8_bits(rows)), rows);
}

void measure_product(LinearPaths& paths, Product product, const at::Tensor& gradient) {
  if (!paths.measure_products || !paths.observing) return;
  ProductMeasurement& measured = paths.measured[index_of(product)];
  if (has_device_numbers(gradient)) {
    add_square(gradient, numbers_of(paths, gradient.device()).square(product));
  } else {
    measured.squared_norm += squared_norm(gradient);
  }
  measured.sampled = true;
}

/// Each operand, by the product that casts it first and the one that may take the same cast.
constexpr OperandUse kInputUse{
    .product = Product::forward, .place = 0, .other_product = Product::weight_gradient, .other_place = 1};
constexpr OperandUse kWeightUse{
    .product = Product::forward, .place = 1, .other_product = Product::input_gradient, .other_place = 1};
constexpr OperandUse kGradientUse{
    .product = Product::input_gradient, .place = 0, .other_product = Product::weight_gradient, .other_place = 0};

/// The use of an operand with the cast shared where that can be.
OperandUse sharing(const LinearPaths& paths, OperandUse use, const at::Tensor& matrix, bool wanted) {
  use.shared = wanted && can_share_cast(paths, use, matrix);
  return use;
}

/// Forward, and the two products of backward. What it saves: the weight, the weight's cast where the input-gradient
/// needs just that, the input's projection for a patrol, and the input (or its cast, where the weight-gradient needs
/// just that, or its 8 bits).
class LinearFunction : public torch::autograd::Function<LinearFunction> {
 public:
  static Variable forward(AutogradContext* context, const Variable& input, const Variable& weight,
                          const std::optional<Variable>& bias, const c10::intrusive_ptr<PathsHolder>& holder) {
    LinearPaths& paths = *holder->paths;
    SharedInput* const shared = SharedInput::of(input);
    const at::Tensor matrix = input.reshape({-1, weight.size(1)});
    observe(paths, Product::forward, 0, matrix);
    observe(paths, Product::forward, 1, weight);
    Saved saved{.weight = weight, .input = matrix};
    at::Tensor result;
    if (paths.recipe != nullptr && paths.low[index_of(Product::forward)]) {
      result = low_forward(paths, matrix, weight, shared, saved);
      if (compares(paths, Comparison::projected)) patrol_rows(paths, Product::forward, result, matrix, weight, true);
    } else {
      result = at::mm(matrix, weight.t());
      if (compares(paths, Comparison::full)) {
        Saved unused;
        compare_in_full(paths, index_of(Product::forward), low_forward(paths, matrix, weight, shared, unused), result);
      }
    }
    if (paths.can_save_low && paths.comparison != Comparison::none && paths.observing) compare_saved(paths, matrix);
    const bool patrols_weight =
        compares(paths, Comparison::projected) && paths.low[index_of(Product::weight_gradient)] && !paths.save_low;
    // The input itself may not be there in backward.
    if (patrols_weight) saved.projected_input = project_input(paths, matrix);
    if (bias) result.add_(*bias);
    save(context, paths, saved, shared);
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
    const Saved saved = saved_in(context, paths);
    const at::Tensor gradient = gradients[0].reshape({-1, saved.weight.size(0)});
    const bool wants_input = context->needs_input_grad(0);
    const bool wants_weight = context->needs_input_grad(1);
    observe(paths, wants_input ? Product::input_gradient : Product::weight_gradient, 0, gradient);
    measure_product(paths, Product::forward, gradient);
    LowOperand cast_gradient;  // where both products take the same
    at::Tensor input_gradient;
    at::Tensor weight_gradient;
    at::Tensor bias_gradient;
    if (wants_input) {
      input_gradient = make_input_gradient(paths, gradient, saved, wants_weight, cast_gradient);
      measure_product(paths, Product::input_gradient, input_gradient);
      input_gradient = input_gradient.view(context->saved_data["input_shape"].toIntVector());
    }
    if (wants_weight) {
      weight_gradient = make_weight_gradient(paths, gradient, saved, cast_gradient);
      measure_product(paths, Product::weight_gradient, weight_gradient);
    }
    if (context->saved_data["has_bias"].toBool() && context->needs_input_grad(2)) bias_gradient = gradient.sum(0);
    return {input_gradient, weight_gradient, bias_gradient, Variable()};
  }

 private:
  struct Saved {
    at::Tensor weight = {};
    LowOperand cast_weight = {};      // undefined: there is none
    at::Tensor projected_input = {};  // undefined: there is none
    at::Tensor input = {};            // undefined: its cast is all that is needed
    LowOperand cast_input = {};       // undefined: there is none
  };

  /// The low product; what backward can use of it goes to `saved`. `shared`: the input, where other layers have it too.
  static at::Tensor low_forward(LinearPaths& paths, const at::Tensor& matrix, const at::Tensor& weight,
                                SharedInput* shared, Saved& saved) {
    const OperandUse input_use = sharing(paths, kInputUse, matrix, !paths.save_low);
    const OperandUse weight_use = sharing(paths, kWeightUse, weight, paths.keep_low_weight);
    const LowOperand low_input =
        shared != nullptr ? shared->operand(paths, input_use, matrix) : low_operand(paths, input_use, matrix);
    const LowOperand low_weight = low_operand(paths, weight_use, weight);
    if (input_use.shared) {
      saved.input = at::Tensor();
      saved.cast_input = low_input;
    }
    if (weight_use.shared) saved.cast_weight = low_weight;
    return low_product(paths, Product::forward, low_input, low_weight, matrix.scalar_type());
  }

  /// What backward needs of an operand, as three tensors: it sums over the rows.
  static void append(const LowOperand& operand, variable_list& tensors) {
    const Fp8Side& side = operand.codes.by_columns;
    tensors.insert(tensors.end(), {operand.values, side.codes, side.scales});
  }

  static void save(AutogradContext* context, const LinearPaths& paths, const Saved& saved, SharedInput* shared) {
    variable_list tensors{saved.weight, saved.projected_input};
    append(saved.cast_weight, tensors);
    append(saved.cast_input, tensors);
    if (paths.save_low) {
      const SavedMatrix bits = shared != nullptr ? shared->in_8_bits(saved.input) : save_in_8_bits(saved.input);
      tensors.insert(tensors.end(), {bits.codes, bits.scales});
    } else {
      tensors.push_back(saved.input);
    }
    context->save_for_backward(std::move(tensors));
  }

  static LowOperand operand_in(const variable_list& tensors, std::size_t first, const LinearPaths& paths,
                               const OperandUse& use) {
    LowOperand operand{.values = tensors[first],
                       .codes = {.by_rows = {}, .by_columns = {tensors[first + 1], tensors[first + 2]}}};
    if (operand.codes.defined()) operand.codes.grouping = paths.recipe->rule(use.product, use.place)->grouping;
    return operand;
  }

  static Saved saved_in(AutogradContext* context, const LinearPaths& paths) {
    const variable_list tensors = context->get_saved_variables();
    const at::Tensor input =
        tensors.size() == 9 ? tensors[8] : restore_from_8_bits({tensors[8], tensors[9]}).to(tensors[0].scalar_type());
    return {.weight = tensors[0],
            .cast_weight = operand_in(tensors, 2, paths, kWeightUse),
            .projected_input = tensors[1],
            .input = input,
            .cast_input = operand_in(tensors, 5, paths, kInputUse)};
  }

  /// The gradient as a product's low path takes it, or as both do.
  static LowOperand low_gradient(LinearPaths& paths, Product product, const at::Tensor& gradient, bool shared,
                                 LowOperand& cast_gradient) {
    OperandUse use = sharing(paths, kGradientUse, gradient, shared);
    use.product = product;
    LowOperand low = low_operand(paths, use, gradient);
    if (use.shared) cast_gradient = low;
    return low;
  }

  static at::Tensor low_input_gradient(LinearPaths& paths, const at::Tensor& gradient, const Saved& saved, bool shared,
                                       LowOperand& cast_gradient) {
    constexpr Product kProduct = Product::input_gradient;
    const LowOperand low = low_gradient(paths, kProduct, gradient, shared, cast_gradient);
    const LowOperand weight = saved.cast_weight.defined()
                                  ? saved.cast_weight
                                  : low_operand(paths, {.product = kProduct, .place = 1}, saved.weight);
    return low_product(paths, kProduct, low, weight, gradient.scalar_type());
  }

  static at::Tensor make_input_gradient(LinearPaths& paths, const at::Tensor& gradient, const Saved& saved, bool shared,
                                        LowOperand& cast_gradient) {
    constexpr Product kProduct = Product::input_gradient;
    if (paths.recipe == nullptr || !paths.low[index_of(kProduct)]) {
      at::Tensor high = at::mm(gradient, saved.weight);
      if (compares(paths, Comparison::full)) {
        compare_in_full(paths, index_of(kProduct), low_input_gradient(paths, gradient, saved, false, cast_gradient),
                        high);
      }
      return high;
    }
    at::Tensor low = low_input_gradient(paths, gradient, saved, shared, cast_gradient);
    if (compares(paths, Comparison::projected)) patrol_rows(paths, kProduct, low, gradient, saved.weight, false);
    return low;
  }

  static at::Tensor low_weight_gradient(LinearPaths& paths, const at::Tensor& gradient, const Saved& saved,
                                        LowOperand& cast_gradient) {
    constexpr Product kProduct = Product::weight_gradient;
    const LowOperand low =
        cast_gradient.defined() ? cast_gradient : low_gradient(paths, kProduct, gradient, false, cast_gradient);
    const LowOperand input = saved.cast_input.defined()
                                 ? saved.cast_input
                                 : low_operand(paths, {.product = kProduct, .place = 1}, saved.input);
    return low_product(paths, kProduct, low, input, gradient.scalar_type());
  }

  static at::Tensor make_weight_gradient(LinearPaths& paths, const at::Tensor& gradient, const Saved& saved,
                                         LowOperand& cast_gradient) {
    constexpr Product kProduct = Product::weight_gradient;
    if (paths.recipe == nullptr || !paths.low[index_of(kProduct)]) {
      at::Tensor high = at::mm(gradient.t(), saved.input);
      if (compares(paths, Comparison::full)) {
        compare_in_full(paths, index_of(kProduct), low_weight_gradient(paths, gradient, saved, cast_gradient), high);
      }
      return high;
    }
    at::Tensor low = low_weight_gradient(paths, gradient, saved, cast_gradient);
    if (compares(paths, Comparison::projected)) {
      patrol_weights(paths, low, gradient,
                     saved.projected_input.defined() ? saved.projected_input : project_input(paths, saved.input));
    }
    return low;
  }
};

}  // namespace

SwitchableLinearImpl::SwitchableLinearImpl(std::int64_t in_features, std::int64_t out_features, bool with_bias)
    : in_features_(in_features), out_features_(out_features), paths_(std::make_shared<LinearPaths>()) {
  weight = register_parameter("weight", at::empty({out_features, in_features}));
  if (with_bias) bias = register_parameter("bias", at::empty({out_features}));
  holder_ = c10::make_intrusive<PathsHolder>(paths_);
}

at::Tensor SwitchableLinearImpl::forward(const at::Tensor& input) {
  const bool plain = paths_->recipe == nullptr && !paths_->measure_products && !paths_->save_low;
  if (plain) return at::linear(input, weight, bias);
  const std::optional<Variable> added = bias.defined() ? std::optional(bias) : std::nullopt;
  return LinearFunction::apply(input, weight, added, c10::static_intrusive_pointer_cast<PathsHolder>(holder_));
}

}  // namespace gnmr::nn
