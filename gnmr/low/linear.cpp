// SPDX-License-Identifier: Apache-2.0
#include "gnmr/low/linear.h"

#include <utility>

#include "gnmr/low/device_numbers.h"
#include "gnmr/recipes/host_cast.h"

namespace gnmr::low {
namespace {

/// One pass of a layer: what all of its steps need.
struct Pass {
  const FrontEnd& front_end;
  LinearPaths& paths;

  bool runs_low(Product product) const { return paths.recipe != nullptr && paths.low[index_of(product)]; }
};

ErrorPlace error_place(const Pass& pass, std::size_t place, const Matrix& on) {
  LinearPaths& paths = pass.paths;
  if (on.place == Place::device) return {.totals = numbers_of(pass.front_end, paths, on).error(place)};
  return {.sums = place < kProductCount ? &paths.measured[place].error : &paths.saved_error};
}

/// Compares two results of a GEMM, or of what was saved (`kProductCount`).
void compare_in_full(const Pass& pass, std::size_t place, const Matrix& low, const Matrix& high) {
  add_error(pass.front_end, low, high, error_place(pass, place, high));
}

/// Compares a low result [tokens, n] with what the high path would have made of `left` [tokens, m] and the weight, or
/// the transposed weight.
void patrol_rows(const Pass& pass, Product product, const Matrix& low, const Matrix& left, const Matrix& weight,
                 bool is_transposed) {
  add_rows_error(pass.front_end, low, left, weight, is_transposed, seed_of(pass.paths, product, 3),
                 error_place(pass, index_of(product), low));
}

/// The same in forward and backward, whatever micro-batches come between them.
std::uint64_t weight_seed(const LinearPaths& paths) {
  const StepClock clock = clock_of(paths);
  return recipes::cast_seed({clock.seed, clock.step, /*micro_batch=*/0, paths.layer}, Product::weight_gradient, 3);
}

/// What saving in 8 bits does to an input.
void compare_saved(const Pass& pass, const Matrix& input) {
  constexpr std::int64_t kRows = 256;  // that a patrol looks at
  const FrontEnd& front_end = pass.front_end;
  const std::int64_t stride = pass.paths.comparison == Comparison::full ? 1 : 1 + (input.rows - 1) / kRows;
  const Matrix rows = stride == 1 ? input : front_end.some_rows(input, stride);
  compare_in_full(pass, kProductCount, restore_from_8_bits(front_end, save_in_8_bits(front_end, rows)), rows);
}

void measure_product(const Pass& pass, Product product, const Matrix& gradient) {
  LinearPaths& paths = pass.paths;
  if (!paths.measure_products || !paths.observing) return;
  ProductMeasurement& measured = paths.measured[index_of(product)];
  if (gradient.place == Place::device) {
    add_square(pass.front_end, gradient, numbers_of(pass.front_end, paths, gradient).square(product));
  } else {
    measured.squared_norm += squared_norm(pass.front_end, gradient);
  }
  measured.sampled = true;
}

/// The use of an operand, shared among two GEMMs where that can be.
OperandUse sharing(const Pass& pass, OperandUse use, const Matrix& matrix, bool wanted) {
  use.shared = wanted && can_share_cast(pass.paths, use, matrix);
  return use;
}

/// The low GEMM; what backward can use of it goes to `saved`.
Matrix low_forward(const Pass& pass, const Matrix& input, const Matrix& weight, const ForwardWishes& wishes,
                   Saved& saved) {
  LinearPaths& paths = pass.paths;
  const FrontEnd& front_end = pass.front_end;
  const OperandUse input_use = sharing(pass, kInputUse, input, wishes.keeps_low_input && !paths.save_low);
  const OperandUse weight_use = sharing(pass, kWeightUse, weight, wishes.keeps_low_weight && paths.keep_low_weight);
  const LowOperand low_input = wishes.shared != nullptr ? wishes.shared->operand(front_end, paths, input_use, input)
                                                        : low_operand(front_end, paths, input_use, input);
  const LowOperand low_weight = low_operand(front_end, paths, weight_use, weight);
  if (input_use.shared) {
    saved.input = Matrix();
    saved.low_input = low_input;
  }
  if (weight_use.shared) saved.low_weight = low_weight;
  return low_product(front_end, paths, Product::forward, low_input, low_weight, input.type);
}

/// The gradient as a GEMM's low path takes it, or as both do.
LowOperand low_gradient(const Pass& pass, Product product, const Matrix& gradient, bool shared, LowOperand& kept) {
  OperandUse use = sharing(pass, kGradientUse, gradient, shared);
  use.product = product;
  LowOperand low = low_operand(pass.front_end, pass.paths, use, gradient);
  if (use.shared) kept = low;
  return low;
}

Matrix low_input_gradient(const Pass& pass, const Matrix& gradient, const Saved& saved, bool shared,
                          LowOperand& kept_gradient) {
  constexpr Product kProduct = Product::input_gradient;
  const LowOperand low = low_gradient(pass, kProduct, gradient, shared, kept_gradient);
  const LowOperand weight = saved.low_weight.defined() ? saved.low_weight
                                                       : low_operand(pass.front_end, pass.paths,
                                                                     {.product = kProduct, .place = 1}, saved.weight);
  return low_product(pass.front_end, pass.paths, kProduct, low, weight, gradient.type);
}

Matrix input_gradient(const Pass& pass, const Matrix& gradient, const Saved& saved, bool shared,
                      LowOperand& kept_gradient) {
  constexpr Product kProduct = Product::input_gradient;
  if (!pass.runs_low(kProduct)) {
    Matrix high = pass.front_end.multiply_high(kProduct, gradient, saved.weight);
    if (pass.paths.compares_high()) {
      compare_in_full(pass, index_of(kProduct), low_input_gradient(pass, gradient, saved, false, kept_gradient), high);
    }
    return high;
  }
  Matrix low = low_input_gradient(pass, gradient, saved, shared, kept_gradient);
  // A comparison that has begun since the forward finds no weight where that is saved as quantized.
  if (pass.paths.compares_low() && saved.weight.defined()) {
    patrol_rows(pass, kProduct, low, gradient, saved.weight, false);
  }
  return low;
}

Matrix low_weight_gradient(const Pass& pass, const Matrix& gradient, const Saved& saved, LowOperand& kept_gradient) {
  constexpr Product kProduct = Product::weight_gradient;
  const LowOperand low =
      kept_gradient.defined() ? kept_gradient : low_gradient(pass, kProduct, gradient, false, kept_gradient);
  const LowOperand input = saved.low_input.defined() ? saved.low_input
                                                     : low_operand(pass.front_end, pass.paths,
                                                                   {.product = kProduct, .place = 1}, saved.input);
  return low_product(pass.front_end, pass.paths, kProduct, low, input, gradient.type);
}

Matrix weight_gradient(const Pass& pass, const Matrix& gradient, const Saved& saved, LowOperand& kept_gradient) {
  constexpr Product kProduct = Product::weight_gradient;
  LinearPaths& paths = pass.paths;
  if (!pass.runs_low(kProduct)) {
    Matrix high = pass.front_end.multiply_high(kProduct, gradient, saved.input);
    if (paths.compares_high()) {
      compare_in_full(pass, index_of(kProduct), low_weight_gradient(pass, gradient, saved, kept_gradient), high);
    }
    return high;
  }
  Matrix low = low_weight_gradient(pass, gradient, saved, kept_gradient);
  // A comparison that has begun since the forward finds no input where that is saved as quantized.
  if (paths.compares_low() && (saved.projected_input.defined() || saved.input.defined())) {
    const Matrix projected = saved.projected_input.defined()
                                 ? saved.projected_input
                                 : project_input(pass.front_end, saved.input, weight_seed(paths));
    add_weight_error(pass.front_end, low, gradient, projected, weight_seed(paths),
                     error_place(pass, index_of(kProduct), low));
  }
  return low;
}

/// While it lives a layer's switch is this one.
class SwitchAs {
 public:
  SwitchAs(LinearPaths& paths, const std::array<bool, kProductCount>& low)
      : paths_(paths), before_(std::exchange(paths.low, low)) {}
  ~SwitchAs() { paths_.low = before_; }
  SwitchAs(const SwitchAs&) = delete;
  SwitchAs& operator=(const SwitchAs&) = delete;

 private:
  LinearPaths& paths_;
  std::array<bool, kProductCount> before_;
};

}  // namespace

std::array<Matrix, Saved::kParts> Saved::parts() const {
  // Backward sums over the rows of what it takes from a forward.
  const auto side = [](const LowOperand& operand) -> const Fp8Side& { return operand.codes.by_columns; };
  return {weight,
          projected_input,
          low_weight.values,
          side(low_weight).codes,
          side(low_weight).scales,
          low_input.values,
          side(low_input).codes,
          side(low_input).scales,
          bits.codes.defined() ? bits.codes : input,
          bits.scales};
}

Saved Saved::from_parts(const Recipe* recipe, const std::array<bool, kProductCount>& low,
                        const std::array<Matrix, kParts>& parts) {
  const auto operand = [&](std::size_t first, const OperandUse& use) {
    LowOperand found{.values = parts[first], .codes = {.by_columns = {parts[first + 1], parts[first + 2]}}};
    if (found.codes.defined()) found.codes.grouping = recipe->rule(use.product, use.place)->grouping;
    return found;
  };
  Saved saved{.low = low,
              .weight = parts[0],
              .low_weight = operand(2, kWeightUse),
              .projected_input = parts[1],
              .low_input = operand(5, kInputUse)};
  if (parts[9].defined()) {
    saved.bits = {parts[8], parts[9]};
  } else {
    saved.input = parts[8];
  }
  return saved;
}

ForwardResult forward(const FrontEnd& front_end, LinearPaths& paths, const Matrix& input, const Matrix& weight,
                      const ForwardWishes& wishes) {
  ForwardResult result{.saved = {.low = paths.low, .weight = weight, .input = input}};
  Saved& saved = result.saved;
  const Pass pass{front_end, paths};
  observe(front_end, paths, Product::forward, 0, input);
  observe(front_end, paths, Product::forward, 1, weight);
  if (pass.runs_low(Product::forward)) {
    result.output = low_forward(pass, input, weight, wishes, saved);
    if (paths.compares_low()) {
      patrol_rows(pass, Product::forward, result.output, input, weight, true);
    }
  } else {
    result.output = front_end.multiply_high(Product::forward, input, weight);
    if (paths.compares_high()) {
      Saved unused;
      const Matrix low = low_forward(pass, input, weight, wishes, unused);
      compare_in_full(pass, index_of(Product::forward), low, result.output);
    }
  }
  if (paths.can_save_low && paths.comparison != Comparison::none && paths.observing) compare_saved(pass, input);
  const bool patrols_weight = paths.compares_low() && pass.runs_low(Product::weight_gradient) && !paths.save_low;
  // The input itself may not be there in backward.
  if (patrols_weight) saved.projected_input = project_input(front_end, input, weight_seed(paths));
  if (paths.save_low) {
    saved.bits = wishes.shared != nullptr ? wishes.shared->in_8_bits(front_end, saved.input)
                                          : save_in_8_bits(front_end, saved.input);
    saved.input = Matrix();
  }
  return result;
}

Gradients backward(const FrontEnd& front_end, LinearPaths& paths, const Saved& from_forward, const Matrix& gradient,
                   bool wants_input, bool wants_weight) {
  const SwitchAs as_told(paths, from_forward.low);
  Saved saved = from_forward;
  if (saved.bits.codes.defined()) {
    saved.input = front_end.to_type(restore_from_8_bits(front_end, saved.bits), saved.weight.type);
  }
  const Pass pass{front_end, paths};
  observe(front_end, paths, wants_input ? Product::input_gradient : Product::weight_gradient, 0, gradient);
  measure_product(pass, Product::forward, gradient);
  LowOperand kept_gradient;  // where both GEMMs take the same
  Gradients gradients;
  if (wants_input) {
    gradients.input = input_gradient(pass, gradient, saved, wants_weight, kept_gradient);
    measure_product(pass, Product::input_gradient, gradients.input);
  }
  if (wants_weight) {
    gradients.weight = weight_gradient(pass, gradient, saved, kept_gradient);
    measure_product(pass, Product::weight_gradient, gradients.weight);
  }
  return gradients;
}

}  // namespace gnmr::low
