// SPDX-License-Identifier: Apache-2.0
#include "gnmr/torch/switchable_linear.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "gnmr/torch/operand_cast.h"
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

std::uint64_t mixed(std::uint64_t state, std::uint64_t value) {
  state = (state ^ value) * 0x9e3779b97f4a7c15u;
  return state ^ (state >> 29);
}

/// A seed of its own for each layer, step, micro-batch, product and purpose: recomputation finds the same one again.
std::uint64_t seed_of(const LinearPaths& paths, Product product, std::size_t purpose) {
  const StepClock clock = paths.clock != nullptr ? *paths.clock : StepClock{};
  std::uint64_t seed = mixed(0x243f6a8885a308d3u, clock.seed);
  seed = mixed(seed, static_cast<std::uint64_t>(clock.step));
  seed = mixed(seed, static_cast<std::uint64_t>(clock.micro_batch));
  seed = mixed(seed, paths.layer);
  return mixed(seed, index_of(product) * 4 + purpose);
}

LowPathCall call_of(const LinearPaths& paths, Product product) {
  const StepClock clock = paths.clock != nullptr ? *paths.clock : StepClock{};
  return {paths.layer, product, clock.step, clock.micro_batch, clock.rerun};
}

/// Where a hook has changed what is cast, as a part of the cast, that is measured against the operand as it was.
void measure_changed(const at::Tensor& before, const at::Tensor& changed, const at::Tensor& after,
                     formats::Statistics& seen) {
  // What was changed was beyond the format; what overflowed besides is among it.
  seen.overflowed =
      std::max(seen.overflowed, static_cast<std::uint64_t>((before != changed).sum().item<std::int64_t>()));
  seen.squared_error = squared_norm(before - after);
  seen.squared_values = squared_norm(before);
}

/// What the low path remembers must go on whatever path is taken.
void observe(LinearPaths& paths, Operand operand, const at::Tensor& matrix) {
  if (!paths.observing || paths.recipe == nullptr || !paths.recipe->uses_delayed(operand)) return;
  float& amax = paths.step_amax[static_cast<std::size_t>(operand)];
  amax = std::max(amax, finite_amax(matrix));
}

/// The cast itself, measured where evidence is asked for.
at::Tensor cast_and_measure(LinearPaths& paths, Product product, std::size_t place, const at::Tensor& matrix,
                            SumOver sum_over) {
  const CastRule& rule = *paths.recipe->rule(product, place);
  const Operand operand = recipes::operands_of(product)[place];
  const at::Tensor source =
      paths.hook != nullptr ? paths.hook->in_cast(call_of(paths, product), operand, matrix) : matrix;
  OperandCast cast{.rule = rule,
                   .sum_over = sum_over,
                   .seed = seed_of(paths, product, place),
                   .transform_seed = seed_of(paths, product, 2)};
  if (rule.grouping == recipes::Grouping::delayed) {
    const formats::DelayedState& state = paths.delayed[index_of(product)][place];
    // Before anything is remembered the scale is that of the tensor itself.
    cast.delayed_scale =
        state.observations > 0 ? state.scale : formats::float32_scale(rule.format, finite_amax(source));
  }
  if (!paths.measure_casts || !paths.observing) return cast_operand(source, cast);
  formats::Statistics seen;
  cast.statistics = &seen;
  at::Tensor result = cast_operand(source, cast);
  if (!source.is_same(matrix) && rule.hadamard == 0) measure_changed(matrix, source, result, seen);
  paths.measured[index_of(product)].casts[place] += seen;
  return result;
}

/// An operand as the low path of a product sees it.
at::Tensor low_operand(LinearPaths& paths, Product product, std::size_t place, const at::Tensor& matrix,
                       SumOver sum_over) {
  const bool is_cast = paths.recipe->rule(product, place).has_value();
  if (paths.hook == nullptr) return is_cast ? cast_and_measure(paths, product, place, matrix, sum_over) : matrix;
  const Operand operand = recipes::operands_of(product)[place];
  const LowPathCall call = call_of(paths, product);
  at::Tensor result = paths.hook->before_cast(call, operand, matrix);
  if (is_cast) result = cast_and_measure(paths, product, place, result, sum_over);
  return paths.hook->after_cast(call, operand, result);
}

/// What comes out of a low product.
at::Tensor low_result(const LinearPaths& paths, Product product, const at::Tensor& result) {
  return paths.hook != nullptr ? paths.hook->after_product(call_of(paths, product), result) : result;
}

bool compares(const LinearPaths& paths, Comparison how) {
  return paths.comparison == how && paths.observing && paths.recipe != nullptr;
}

/// Compares a low result [tokens, n] with what the high path would have made of `left` [tokens, m] and `right` [m, n].
void patrol_rows(LinearPaths& paths, Product product, const at::Tensor& low, const at::Tensor& left,
                 const at::Tensor& right) {
  add_rows_error(low, left, right, seed_of(paths, product, 3), paths.measured[index_of(product)].error);
}

at::Tensor weight_signs(const LinearPaths& paths, const at::Tensor& weight) {
  return random_signs(weight.size(1), kWeightProbeVectors, seed_of(paths, Product::weight_gradient, 3), weight);
}

/// What saving in 8 bits does to an input.
void compare_saved(LinearPaths& paths, const at::Tensor& input) {
  constexpr std::int64_t kRows = 256;  // that a patrol looks at
  const std::int64_t stride = paths.comparison == Comparison::full ? 1 : 1 + (input.size(0) - 1) / kRows;
  const at::Tensor rows = stride == 1 ? input : input.slice(0, 0, input.size(0), stride).contiguous();
  add_error(restore_from_8_bits(save_in_8_bits(rows)), rows, paths.saved_error);
}

/// Whether what one product casts can be what another one needs.
bool shares_cast(const LinearPaths& paths, Product first, std::size_t first_place, Product second,
                 std::size_t second_place) {
  if (paths.recipe == nullptr || !paths.low[index_of(first)] || !paths.low[index_of(second)]) return false;
  const auto& rule = paths.recipe->rule(first, first_place);
  return rule == paths.recipe->rule(second, second_place) &&
         (!rule || (rule->ignores_direction() && rule->rounding == formats::Rounding::nearest_even));
}

void measure_product(LinearPaths& paths, Product product, const at::Tensor& gradient) {
  if (!paths.measure_products || !paths.observing) return;
  ProductMeasurement& measured = paths.measured[index_of(product)];
  measured.squared_norm += squared_norm(gradient);
  measured.sampled = true;
}

/// Evidence of a cast that serves two products belongs to both.
void copy_evidence(LinearPaths& paths, Product from, std::size_t from_place, Product to, std::size_t to_place,
                   const formats::Statistics& before) {
  if (!paths.measure_casts || !paths.observing) return;
  paths.measured[index_of(to)].casts[to_place] += paths.measured[index_of(from)].casts[from_place] - before;
}

/// Forward, and the two products of backward. What it saves: the weight, the weight's cast where the input-gradient
/// needs just that, the input's projection for a patrol, and the input (or its cast, where the weight-gradient needs
/// just that, or its 8 bits).
class LinearFunction : public torch::autograd::Function<LinearFunction> {
 public:
  static Variable forward(AutogradContext* context, const Variable& input, const Variable& weight,
                          const std::optional<Variable>& bias, const c10::intrusive_ptr<PathsHolder>& holder) {
    LinearPaths& paths = *holder->paths;
    const at::Tensor matrix = input.reshape({-1, weight.size(1)});
    observe(paths, Operand::input, matrix);
    observe(paths, Operand::weight, weight);
    Saved saved{.weight = weight, .input = matrix};
    at::Tensor result;
    if (paths.recipe != nullptr && paths.low[index_of(Product::forward)]) {
      result = low_forward(paths, matrix, weight, saved);
      if (compares(paths, Comparison::projected)) patrol_rows(paths, Product::forward, result, matrix, weight.t());
    } else {
      result = at::mm(matrix, weight.t());
      if (compares(paths, Comparison::full)) {
        Saved unused;
        add_error(low_forward(paths, matrix, weight, unused), result, paths.measured[0].error);
      }
    }
    if (paths.can_save_low && paths.comparison != Comparison::none && paths.observing) compare_saved(paths, matrix);
    const bool patrols_weight =
        compares(paths, Comparison::projected) && paths.low[index_of(Product::weight_gradient)] && !paths.save_low;
    // The input itself may not be there in backward.
    if (patrols_weight) saved.projected_input = thin_product(matrix, weight_signs(paths, weight));
    if (bias) result.add_(*bias);
    context->saved_data["input_is_cast"] = saved.input_is_cast;
    save(context, paths, saved);
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
    const Saved saved = saved_in(context);
    const at::Tensor gradient = gradients[0].reshape({-1, saved.weight.size(0)});
    observe(paths, Operand::output_gradient, gradient);
    measure_product(paths, Product::forward, gradient);
    at::Tensor input_gradient;
    at::Tensor weight_gradient;
    at::Tensor bias_gradient;
    if (context->needs_input_grad(0)) {
      input_gradient = make_input_gradient(paths, gradient, saved);
      measure_product(paths, Product::input_gradient, input_gradient);
      input_gradient = input_gradient.view(context->saved_data["input_shape"].toIntVector());
    }
    if (context->needs_input_grad(1)) {
      weight_gradient = make_weight_gradient(paths, gradient, saved);
      measure_product(paths, Product::weight_gradient, weight_gradient);
    }
    if (context->saved_data["has_bias"].toBool() && context->needs_input_grad(2)) bias_gradient = gradient.sum(0);
    return {input_gradient, weight_gradient, bias_gradient, Variable()};
  }

 private:
  struct Saved {
    at::Tensor weight = {};
    at::Tensor cast_weight = {};      // undefined: there is none
    at::Tensor projected_input = {};  // undefined: there is none
    at::Tensor input = {};
    bool input_is_cast = false;
  };

  /// The low product; what backward can use of it goes to `saved`.
  static at::Tensor low_forward(LinearPaths& paths, const at::Tensor& matrix, const at::Tensor& weight, Saved& saved) {
    const formats::Statistics input_before = paths.measured[0].casts[0];
    const formats::Statistics weight_before = paths.measured[0].casts[1];
    const at::Tensor low_input = low_operand(paths, Product::forward, 0, matrix, SumOver::columns);
    const at::Tensor low_weight = low_operand(paths, Product::forward, 1, weight, SumOver::columns);
    if (!paths.save_low && shares_cast(paths, Product::forward, 0, Product::weight_gradient, 1)) {
      saved.input = low_input;
      saved.input_is_cast = true;
      copy_evidence(paths, Product::forward, 0, Product::weight_gradient, 1, input_before);
    }
    if (shares_cast(paths, Product::forward, 1, Product::input_gradient, 1)) {
      saved.cast_weight = low_weight;
      copy_evidence(paths, Product::forward, 1, Product::input_gradient, 1, weight_before);
    }
    return low_result(paths, Product::forward, at::mm(low_input, low_weight.t()));
  }

  static void save(AutogradContext* context, const LinearPaths& paths, const Saved& saved) {
    variable_list tensors{saved.weight, saved.cast_weight, saved.projected_input};
    if (paths.save_low) {
      const SavedMatrix bits = save_in_8_bits(saved.input);
      tensors.insert(tensors.end(), {bits.codes, bits.scales});
    } else {
      tensors.push_back(saved.input);
    }
    context->save_for_backward(std::move(tensors));
  }

  static Saved saved_in(AutogradContext* context) {
    const variable_list tensors = context->get_saved_variables();
    return {.weight = tensors[0],
            .cast_weight = tensors[1],
            .projected_input = tensors[2],
            .input = tensors.size() == 4 ? tensors[3] : restore_from_8_bits({tensors[3], tensors[4]}),
            .input_is_cast = context->saved_data["input_is_cast"].toBool()};
  }

  static at::Tensor low_input_gradient(LinearPaths& paths, const at::Tensor& gradient, const Saved& saved) {
    constexpr Product kProduct = Product::input_gradient;
    const at::Tensor low_gradient = low_operand(paths, kProduct, 0, gradient, SumOver::columns);
    const at::Tensor low_weight =
        saved.cast_weight.defined() ? saved.cast_weight : low_operand(paths, kProduct, 1, saved.weight, SumOver::rows);
    return low_result(paths, kProduct, at::mm(low_gradient, low_weight));
  }

  static at::Tensor make_input_gradient(LinearPaths& paths, const at::Tensor& gradient, const Saved& saved) {
    constexpr Product kProduct = Product::input_gradient;
    if (paths.recipe == nullptr || !paths.low[index_of(kProduct)]) {
      at::Tensor high = at::mm(gradient, saved.weight);
      if (compares(paths, Comparison::full)) {
        add_error(low_input_gradient(paths, gradient, saved), high, paths.measured[index_of(kProduct)].error);
      }
      return high;
    }
    at::Tensor low = low_input_gradient(paths, gradient, saved);
    if (compares(paths, Comparison::projected)) patrol_rows(paths, kProduct, low, gradient, saved.weight);
    return low;
  }

  static at::Tensor low_weight_gradient(LinearPaths& paths, const at::Tensor& gradient, const Saved& saved) {
    constexpr Product kProduct = Product::weight_gradient;
    const at::Tensor low_gradient = low_operand(paths, kProduct, 0, gradient, SumOver::rows);
    const at::Tensor low_input =
        saved.input_is_cast ? saved.input : low_operand(paths, kProduct, 1, saved.input, SumOver::rows);
    return low_result(paths, kProduct, at::mm(low_gradient.t(), low_input));
  }

  static at::Tensor make_weight_gradient(LinearPaths& paths, const at::Tensor& gradient, const Saved& saved) {
    constexpr Product kProduct = Product::weight_gradient;
    ErrorSums& error = paths.measured[index_of(kProduct)].error;
    if (paths.recipe == nullptr || !paths.low[index_of(kProduct)]) {
      at::Tensor high = at::mm(gradient.t(), saved.input);
      if (compares(paths, Comparison::full)) add_error(low_weight_gradient(paths, gradient, saved), high, error);
      return high;
    }
    at::Tensor low = low_weight_gradient(paths, gradient, saved);
    if (compares(paths, Comparison::projected)) {
      const at::Tensor signs = weight_signs(paths, saved.weight);
      const at::Tensor projected =
          saved.projected_input.defined() ? saved.projected_input : thin_product(saved.input, signs);
      add_projected_error(low, signs, thin_product(gradient.t(), projected), error);
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
