// SPDX-License-Identifier: Apache-2.0
#include "gnmr/torch/switchable_linear.h"

#include <ATen/ops/clamp.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/where.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "gnmr/torch/operand_cast.h"
#include "gnmr/torch/squared_norm.h"

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

constexpr float kOverflowFrom = 8;  // the injector calls magnitudes above this part of the largest large

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

/// What the injector makes of an input.
at::Tensor with_fault(const at::Tensor& input, Fault fault, float strength) {
  const float amax = finite_amax(input);
  if (fault == Fault::saturate) return at::clamp(input, -amax / strength, amax / strength);
  return at::where(input.abs() > amax / kOverflowFrom, input * strength, input);
}

/// Where evidence is asked for in a step with a fault, the cast is measured against the input as it was.
void measure_faulty(const at::Tensor& before, const at::Tensor& faulty, const at::Tensor& after,
                    formats::Statistics& seen) {
  // What the fault changed was beyond the format; what overflowed besides is among it.
  seen.overflowed =
      std::max(seen.overflowed, static_cast<std::uint64_t>((before != faulty).sum().item<std::int64_t>()));
  seen.squared_error = squared_norm(before - after);
  seen.squared_values = squared_norm(before);
}

/// What the low path remembers must go on whatever path is taken.
void observe(LinearPaths& paths, Operand operand, const at::Tensor& matrix) {
  if (!paths.observing || paths.recipe == nullptr || !paths.recipe->uses_delayed(operand)) return;
  float& amax = paths.step_amax[static_cast<std::size_t>(operand)];
  amax = std::max(amax, finite_amax(matrix));
}

/// An operand as the low path of a product sees it.
at::Tensor low_operand(LinearPaths& paths, Product product, std::size_t place, const at::Tensor& matrix,
                       SumOver sum_over) {
  const auto& rule = paths.recipe->rule(product, place);
  const bool faulty = paths.fault != Fault::none && recipes::operands_of(product)[place] == Operand::input;
  const at::Tensor source = faulty ? with_fault(matrix, paths.fault, paths.fault_strength) : matrix;
  if (!rule) return source;
  OperandCast cast{.rule = *rule,
                   .sum_over = sum_over,
                   .seed = seed_of(paths, product, place),
                   .transform_seed = seed_of(paths, product, 2)};
  if (rule->grouping == recipes::Grouping::delayed) {
    const formats::DelayedState& state = paths.delayed[index_of(product)][place];
    // Before anything is remembered the scale is that of the tensor itself.
    cast.delayed_scale =
        state.observations > 0 ? state.scale : formats::float32_scale(rule->format, finite_amax(source));
  }
  if (!paths.measure_casts || !paths.observing) return cast_operand(source, cast);
  formats::Statistics seen;
  cast.statistics = &seen;
  at::Tensor result = cast_operand(source, cast);
  if (faulty && rule->hadamard == 0) measure_faulty(matrix, source, result, seen);
  paths.measured[index_of(product)].casts[place] += seen;
  return result;
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

/// Forward, and the two products of backward. What it saves: the input (or its cast, where the weight-gradient needs
/// just that, or its 8 bits), the weight, and the weight's cast where the input-gradient needs just that.
class LinearFunction : public torch::autograd::Function<LinearFunction> {
 public:
  static Variable forward(AutogradContext* context, const Variable& input, const Variable& weight,
                          const std::optional<Variable>& bias, const c10::intrusive_ptr<PathsHolder>& holder) {
    LinearPaths& paths = *holder->paths;
    const at::Tensor matrix = input.reshape({-1, weight.size(1)});
    observe(paths, Operand::input, matrix);
    observe(paths, Operand::weight, weight);
    at::Tensor saved_input = matrix;
    at::Tensor cast_weight;
    at::Tensor result;
    if (paths.recipe != nullptr && paths.low[index_of(Product::forward)]) {
      const formats::Statistics input_before = paths.measured[0].casts[0];
      const formats::Statistics weight_before = paths.measured[0].casts[1];
      const at::Tensor low_input = low_operand(paths, Product::forward, 0, matrix, SumOver::columns);
      const at::Tensor low_weight = low_operand(paths, Product::forward, 1, weight, SumOver::columns);
      result = at::mm(low_input, low_weight.t());
      if (!paths.save_low && shares_cast(paths, Product::forward, 0, Product::weight_gradient, 1)) {
        saved_input = low_input;
        context->saved_data["input_is_cast"] = true;
        copy_evidence(paths, Product::forward, 0, Product::weight_gradient, 1, input_before);
      }
      if (shares_cast(paths, Product::forward, 1, Product::input_gradient, 1)) {
        cast_weight = low_weight;
        copy_evidence(paths, Product::forward, 1, Product::input_gradient, 1, weight_before);
      }
    } else {
      result = at::mm(matrix, weight.t());
    }
    if (bias) result.add_(*bias);
    save(context, paths, saved_input, weight, cast_weight);
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
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& weight = saved[0];
    const at::Tensor gradient = gradients[0].reshape({-1, weight.size(0)});
    observe(paths, Operand::output_gradient, gradient);
    measure_product(paths, Product::forward, gradient);
    at::Tensor input_gradient;
    at::Tensor weight_gradient;
    at::Tensor bias_gradient;
    if (context->needs_input_grad(0)) {
      input_gradient = make_input_gradient(paths, gradient, weight, saved[1]);
      measure_product(paths, Product::input_gradient, input_gradient);
      input_gradient = input_gradient.view(context->saved_data["input_shape"].toIntVector());
    }
    if (context->needs_input_grad(1)) {
      weight_gradient = make_weight_gradient(paths, gradient, saved_input(context, saved),
                                             context->saved_data.count("input_is_cast") != 0);
      measure_product(paths, Product::weight_gradient, weight_gradient);
    }
    if (context->saved_data["has_bias"].toBool() && context->needs_input_grad(2)) bias_gradient = gradient.sum(0);
    return {input_gradient, weight_gradient, bias_gradient, Variable()};
  }

 private:
  static void save(AutogradContext* context, const LinearPaths& paths, const at::Tensor& input,
                   const at::Tensor& weight, const at::Tensor& cast_weight) {
    if (!paths.save_low) {
      context->save_for_backward({weight, cast_weight, input});
      return;
    }
    const SavedMatrix bits = save_in_8_bits(input);
    context->save_for_backward({weight, cast_weight, bits.codes, bits.scales});
  }

  static at::Tensor saved_input(AutogradContext*, const variable_list& saved) {
    return saved.size() == 3 ? saved[2] : restore_from_8_bits({saved[2], saved[3]});
  }

  static at::Tensor make_input_gradient(LinearPaths& paths, const at::Tensor& gradient, const at::Tensor& weight,
                                        const at::Tensor& cast_weight) {
    constexpr Product kProduct = Product::input_gradient;
    if (paths.recipe == nullptr || !paths.low[index_of(kProduct)]) return at::mm(gradient, weight);
    const at::Tensor low_gradient = low_operand(paths, kProduct, 0, gradient, SumOver::columns);
    const at::Tensor low_weight =
        cast_weight.defined() ? cast_weight : low_operand(paths, kProduct, 1, weight, SumOver::rows);
    return at::mm(low_gradient, low_weight);
  }

  static at::Tensor make_weight_gradient(LinearPaths& paths, const at::Tensor& gradient, const at::Tensor& input,
                                         bool input_is_cast) {
    constexpr Product kProduct = Product::weight_gradient;
    if (paths.recipe == nullptr || !paths.low[index_of(kProduct)]) return at::mm(gradient.t(), input);
    const at::Tensor low_gradient = low_operand(paths, kProduct, 0, gradient, SumOver::rows);
    const at::Tensor low_input = input_is_cast ? input : low_operand(paths, kProduct, 1, input, SumOver::rows);
    return at::mm(low_gradient.t(), low_input);
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
