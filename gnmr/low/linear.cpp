// SPDX-License-Identifier: Apache-2.0
#include "gnmr/low/linear.h"

#include <optional>
#include <utility>
#include <vector>

#include "gnmr/low/device_numbers.h"
#include "gnmr/recipes/host_cast.h"

namespace gnmr::low {
namespace {

/// One pass of a layer: what all of its steps need.
struct Pass {
  const FrontEnd& front_end;
  const Members& members;

  /// Calls `visit(member, its paths)` for the members that run.
  template <class Visit>
  void for_members(const Visit& visit) const {
    for (std::size_t member = 0; member < members.count(); ++member) {
      if (members.runs(member)) visit(member, members[member]);
    }
  }

  /// Whether `holds(paths)` for one of them.
  template <class Condition>
  bool any(const Condition& holds) const {
    bool found = false;
    for_members([&](std::size_t, const LinearPaths& paths) { found = found || holds(paths); });
    return found;
  }

  /// A member's part of a matrix with rows of tokens, or of a weight.
  Matrix tokens(const Matrix& all, std::size_t member) const { return part(all, Split::by_offsets, member); }
  Matrix weight(const Matrix& all, std::size_t member) const { return part(all, Split::evenly, member); }
  Matrix part(const Matrix& all, Split split, std::size_t member) const {
    return members.part(front_end, all, split, member);
  }
};

bool runs_low(const LinearPaths& paths, Product product) {
  return paths.recipe != nullptr && paths.low[index_of(product)];
}

/// Whether the low path of a GEMM is run: for its result, or beside the high one.
bool makes_low(const LinearPaths& paths, Product product) { return runs_low(paths, product) || paths.compares_high(); }

bool any_makes_low(const Pass& pass, Product product) {
  return pass.any([&](const LinearPaths& paths) { return makes_low(paths, product); });
}

/// Whether both GEMMs that can take one quantized operand run low.
bool takes_both(const LinearPaths& paths, const OperandUse& use) {
  return runs_low(paths, use.product) && runs_low(paths, use.other_product);
}

ErrorPlace error_place(const Pass& pass, LinearPaths& paths, std::size_t place, const Matrix& on) {
  if (on.place == Place::device) return {.on_device = numbers_of(pass.front_end, paths, on).error(place)};
  return {.sums = place < kProductCount ? &paths.measured[place].error : &paths.saved_error};
}

/// Where a sample of the rows of a GEMM's result goes.
ErrorPlace sample_place(const Pass& pass, LinearPaths& paths, Product product, const Matrix& on) {
  if (on.place == Place::device) {
    return {.sample = numbers_of(pass.front_end, paths, on).sample(product)};
  }
  return {.sums = &paths.measured[index_of(product)].error};
}

/// Compares two results of a GEMM, or of what was saved (`kProductCount`).
void compare_in_full(const Pass& pass, LinearPaths& paths, std::size_t place, const Matrix& low, const Matrix& high) {
  add_error(pass.front_end, low, high, error_place(pass, paths, place, high));
}

/// What a weight is for a patrol of a GEMM, made where it is not there; undefined where there is no weight either.
Matrix weight_signs(const Pass& pass, LinearPaths& paths, Product product, const Matrix& weight) {
  const std::uint64_t forward_signs = probe_seeds(paths, Product::forward).signs;
  ProjectedWeight& projected = paths.projected_weight;
  if (projected.signs != forward_signs || (weight.defined() && projected.weight != weight.data)) {
    projected = {.weight = weight.data, .signs = forward_signs};
  }
  WeightProducts& products = projected.products;
  Matrix& wanted = product == Product::forward ? products.of_inputs : products.of_outputs;
  if (wanted.defined() || !weight.defined()) return wanted;
  std::optional<std::uint64_t> dgrad_signs;
  if (runs_low(paths, Product::input_gradient)) dgrad_signs = probe_seeds(paths, Product::input_gradient).signs;
  if (product == Product::forward) {
    products = project_weight(pass.front_end, weight, forward_signs, dgrad_signs);
  } else {
    products.of_outputs = project_weight(pass.front_end, weight, std::nullopt, dgrad_signs).of_outputs;
  }
  return wanted;
}

/// Compares rows of a low result [tokens, n] with what the high path would have made of `left` [tokens, m] and the
/// weight, or the transposed weight.
void patrol_rows(const Pass& pass, LinearPaths& paths, Product product, const Matrix& low, const Matrix& left,
                 const Matrix& weight) {
  const Matrix signs = weight_signs(pass, paths, product, weight);
  // A comparison that has begun since the forward finds no weight where that is saved as quantized.
  if (!signs.defined()) return;
  add_rows_error(pass.front_end, low, left, signs, probe_seeds(paths, product),
                 sample_place(pass, paths, product, low));
}

/// What saving in 8 bits does to an input.
void compare_saved(const Pass& pass, LinearPaths& paths, const Matrix& input) {
  constexpr std::int64_t kRows = 256;  // that a patrol looks at
  const FrontEnd& front_end = pass.front_end;
  const std::int64_t stride = paths.comparison == Comparison::full ? 1 : 1 + (input.rows - 1) / kRows;
  const Matrix rows = stride == 1 ? input : front_end.some_rows(input, stride);
  compare_in_full(pass, paths, kProductCount, restore_from_8_bits(front_end, save_in_8_bits(front_end, rows)), rows);
}

void measure_product(const Pass& pass, Product product, const Matrix& gradient, Split split) {
  pass.for_members([&](std::size_t member, LinearPaths& paths) {
    if (!paths.measure_products || !paths.observing) return;
    ProductMeasurement& measured = paths.measured[index_of(product)];
    const Matrix part = pass.part(gradient, split, member);
    if (part.place == Place::device) {
      add_square(pass.front_end, part, numbers_of(pass.front_end, paths, part).square(product));
    } else {
      measured.squared_norm += squared_norm(pass.front_end, part);
    }
    measured.sampled = true;
  });
}

// What follows runs member by member; a kernel for all members takes the same whole operands and results.

/// An operand for the low path of the GEMM that takes it first. If it is `wanted` for the second one too, what both can
/// take goes to `kept`.
LowOperand quantized(const Pass& pass, OperandUse use, const Matrix& matrix, bool wanted, LowOperand& kept,
                     SharedOperands* layers = nullptr) {
  const FrontEnd& front_end = pass.front_end;
  const Members& members = pass.members;
  if (members.is_one()) {
    use.shared = wanted && can_share_cast(members[0], use, matrix);
    LowOperand low = layers != nullptr ? layers->operand(front_end, members[0], use, matrix)
                                       : low_operand(front_end, members[0], use, matrix);
    if (use.shared) kept = low;
    return low;
  }
  const Split split = split_of(recipes::operands_of(use.product)[use.place]);
  std::vector<LowOperand> parts(members.count());
  bool keeps = false;
  pass.for_members([&](std::size_t member, LinearPaths& paths) {
    if (!makes_low(paths, use.product)) return;
    const Matrix part = pass.part(matrix, split, member);
    use.shared = wanted && can_share_cast(paths, use, part);
    keeps = keeps || use.shared;
    parts[member] = low_operand(front_end, paths, use, part);
  });
  LowOperand low = members.joined(front_end, parts, split);
  if (keeps) kept = low;
  return low;
}

/// An operand for the low path of the GEMM that takes it second: as it was kept, or quantized now.
LowOperand kept_or_quantized(const Pass& pass, const OperandUse& first, const Matrix& matrix, const LowOperand& kept) {
  const FrontEnd& front_end = pass.front_end;
  const Members& members = pass.members;
  const OperandUse use{.product = first.other_product, .place = first.other_place};
  if (members.is_one()) return kept.defined() ? kept : low_operand(front_end, members[0], use, matrix);
  const auto is_new = [&](const LinearPaths& paths) {
    return makes_low(paths, use.product) && !(kept.defined() && takes_both(paths, first));
  };
  if (!pass.any(is_new)) return kept;
  const Split split = split_of(recipes::operands_of(use.product)[use.place]);
  std::vector<LowOperand> parts(members.count());
  pass.for_members([&](std::size_t member, LinearPaths& paths) {
    if (is_new(paths)) {
      parts[member] = low_operand(front_end, paths, use, pass.part(matrix, split, member));
    } else if (makes_low(paths, use.product)) {
      parts[member] = members.part(front_end, kept, split, member);
    }
  });
  return members.joined(front_end, parts, split);
}

/// The low results of all members that make one.
Matrix low_results(const Pass& pass, Product product, const LowOperand& left, const LowOperand& right, Type type) {
  const FrontEnd& front_end = pass.front_end;
  const Members& members = pass.members;
  if (members.is_one()) return low_product(front_end, members[0], product, left, right, type);
  const auto [left_operand, right_operand] = recipes::operands_of(product);
  Matrix all;
  for (std::size_t member = 0; member < members.count(); ++member) {
    if (!members.runs(member) || !makes_low(members[member], product)) continue;
    const LowOperand left_part = members.part(front_end, left, split_of(left_operand), member);
    const LowOperand right_part = members.part(front_end, right, split_of(right_operand), member);
    members.place(front_end, low_product(front_end, members[member], product, left_part, right_part, type),
                  split_of_result(product), member, all);
  }
  return all;
}

/// Room for the results of all members.
Matrix empty_results(const Pass& pass, Product product, const Matrix& left, const Matrix& right) {
  const auto count = static_cast<std::int64_t>(pass.members.count());
  const std::int64_t rows = product == Product::weight_gradient ? left.columns * count : left.rows;
  return pass.front_end.empty(left, left.type, rows, product == Product::forward ? right.rows / count : right.columns);
}

/// The results of all members on their paths, from `all` low ones, in which the rows of those that run high are
/// overwritten. Both are compared where that is asked for; `patrol(member, its paths, low)` does so beside the low
/// path.
template <class Patrol>
Matrix results(const Pass& pass, Product product, const Matrix& left, const Matrix& right, Matrix all,
               const Patrol& patrol) {
  const Members& members = pass.members;
  const FrontEnd& front_end = pass.front_end;
  const auto [left_operand, right_operand] = recipes::operands_of(product);
  const Split split = split_of_result(product);
  if (!members.is_one() && !all.defined()) all = empty_results(pass, product, left, right);
  for (std::size_t member = 0; member < members.count(); ++member) {
    LinearPaths& paths = members[member];
    if (!members.runs(member)) {
      if (product == Product::weight_gradient) front_end.zero(pass.part(all, split, member));
    } else if (runs_low(paths, product)) {
      if (paths.compares_low()) patrol(member, paths, pass.part(all, split, member));
    } else {
      const Matrix left_part = pass.part(left, split_of(left_operand), member);
      const Matrix right_part = pass.part(right, split_of(right_operand), member);
      const recipes::GemmRules* const rules = paths.recovery_rules(index_of(product));
      Matrix high = rules != nullptr ? product_by_rules(front_end, paths, product, *rules, left_part, right_part)
                                     : front_end.multiply_high(product, left_part, right_part);
      if (paths.compares_high()) compare_in_full(pass, paths, index_of(product), pass.part(all, split, member), high);
      members.place(front_end, std::move(high), split, member, all);
    }
  }
  return all;
}

/// The low results; what backward can use of their operands goes to `saved`.
Matrix low_forward(const Pass& pass, const Matrix& input, const Matrix& weight, const ForwardWishes& wishes,
                   Saved& saved) {
  const LinearPaths& layer = pass.members.layer();
  const LowOperand low_input =
      quantized(pass, kInputUse, input, wishes.keeps_low_input && !layer.save_low, saved.low_input, wishes.shared);
  const LowOperand low_weight =
      quantized(pass, kWeightUse, weight, wishes.keeps_low_weight && layer.keep_low_weight, saved.low_weight);
  const bool needs_input = pass.any([](const LinearPaths& paths) { return !takes_both(paths, kInputUse); });
  if (saved.low_input.defined() && !needs_input) saved.input = Matrix();
  return low_results(pass, Product::forward, low_input, low_weight, input.type);
}

Matrix input_gradient(const Pass& pass, const Matrix& gradient, const Saved& saved, bool wants_weight,
                      LowOperand& kept_gradient) {
  constexpr Product kProduct = Product::input_gradient;
  Matrix low;
  if (any_makes_low(pass, kProduct)) {
    const LowOperand low_gradient = quantized(pass, kGradientUse, gradient, wants_weight, kept_gradient);
    const LowOperand low_weight = kept_or_quantized(pass, kWeightUse, saved.weight, saved.low_weight);
    low = low_results(pass, kProduct, low_gradient, low_weight, gradient.type);
  }
  return results(pass, kProduct, gradient, saved.weight, std::move(low),
                 [&](std::size_t member, LinearPaths& paths, const Matrix& part) {
                   patrol_rows(pass, paths, kProduct, part, pass.tokens(gradient, member),
                               saved.weight.defined() ? pass.weight(saved.weight, member) : Matrix());
                 });
}

/// How a projected input lies: on a device it is vectors.
Layout layout_of_projected(const Matrix& projected) {
  return projected.place == Place::device ? Layout::by_columns : Layout::by_rows;
}

/// The input as it is needed to compare the gradients of weights.
Matrix projected_input(const Pass& pass, const Matrix& input, SharedOperands* layers = nullptr) {
  if (layers != nullptr && pass.members.is_one()) {
    return layers->projected(pass.front_end, input, probe_seeds(pass.members.layer(), Product::weight_gradient).signs);
  }
  Matrix all;
  pass.for_members([&](std::size_t member, const LinearPaths& paths) {
    const Matrix part =
        project_input(pass.front_end, pass.tokens(input, member), probe_seeds(paths, Product::weight_gradient).signs);
    pass.members.place(pass.front_end, part, Split::by_offsets, member, all, layout_of_projected(part));
  });
  return all;
}

Matrix weight_gradient(const Pass& pass, const Matrix& gradient, const Saved& saved, const LowOperand& kept_gradient) {
  constexpr Product kProduct = Product::weight_gradient;
  Matrix low;
  if (any_makes_low(pass, kProduct)) {
    const LowOperand low_gradient = kept_or_quantized(pass, kGradientUse, gradient, kept_gradient);
    const LowOperand low_input = kept_or_quantized(pass, kInputUse, saved.input, saved.low_input);
    low = low_results(pass, kProduct, low_gradient, low_input, gradient.type);
  }
  Matrix projected = saved.projected_input;
  return results(pass, kProduct, gradient, saved.input, std::move(low),
                 [&](std::size_t member, LinearPaths& paths, const Matrix& part) {
                   // A comparison that has begun since the forward finds no input where that is saved as quantized.
                   if (!projected.defined() && saved.input.defined()) projected = projected_input(pass, saved.input);
                   if (!projected.defined()) return;
                   add_weight_error(pass.front_end, part, pass.tokens(gradient, member),
                                    pass.members.part(pass.front_end, projected, Split::by_offsets, member,
                                                      layout_of_projected(projected)),
                                    probe_seeds(paths, kProduct), sample_place(pass, paths, kProduct, part));
                 });
}

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

Saved Saved::from_parts(const Recipe* recipe, const std::array<Matrix, kParts>& parts) {
  const auto operand = [&](std::size_t first, const OperandUse& use) {
    LowOperand found{.values = parts[first], .codes = {.by_columns = {parts[first + 1], parts[first + 2]}}};
    if (found.codes.defined()) found.codes.grouping = recipe->rule(use.product, use.place)->grouping;
    return found;
  };
  Saved saved{.weight = parts[0],
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

ForwardResult forward(const FrontEnd& front_end, const Members& members, const Matrix& given_input,
                      const Matrix& given_weight, const ForwardWishes& wishes) {
  members.check(given_input.rows, given_weight.rows);
  const Matrix input = members.divisible(front_end, given_input);
  const Matrix weight = members.divisible(front_end, given_weight);
  const LinearPaths& layer = members.layer();
  const Pass pass{front_end, members};
  ForwardResult result{.saved = {.weight = weight, .input = input}};
  Saved& saved = result.saved;
  pass.for_members([&](std::size_t member, LinearPaths& paths) {
    observe(front_end, paths, Product::forward, 0, pass.tokens(input, member));
    observe(front_end, paths, Product::forward, 1, pass.weight(weight, member));
  });
  Matrix low;
  if (any_makes_low(pass, Product::forward)) low = low_forward(pass, input, weight, wishes, saved);
  result.output = results(
      pass, Product::forward, input, weight, low, [&](std::size_t member, LinearPaths& paths, const Matrix& part) {
        patrol_rows(pass, paths, Product::forward, part, pass.tokens(input, member), pass.weight(weight, member));
      });
  pass.for_members([&](std::size_t member, LinearPaths& paths) {
    if (!paths.can_save_low || paths.comparison == Comparison::none || !paths.observing) return;
    compare_saved(pass, paths, pass.tokens(input, member));
  });
  const bool patrols_weight = pass.any([](const LinearPaths& paths) {
    return paths.compares_low() && runs_low(paths, Product::weight_gradient) && !paths.save_low;
  });
  // The input itself may not be there in backward.
  if (patrols_weight) saved.projected_input = projected_input(pass, input, wishes.shared);
  if (layer.save_low) {
    saved.bits = wishes.shared != nullptr ? wishes.shared->in_8_bits(front_end, saved.input)
                                          : save_in_8_bits(front_end, saved.input);
    saved.input = Matrix();
  }
  return result;
}

Gradients backward(const FrontEnd& front_end, const Members& members, const Saved& from_forward,
                   const Matrix& given_gradient, bool wants_input, bool wants_weight) {
  members.check(given_gradient.rows, from_forward.weight.rows);
  const Matrix gradient = members.divisible(front_end, given_gradient);
  Saved saved = from_forward;
  if (saved.bits.codes.defined()) {
    saved.input = front_end.to_type(restore_from_8_bits(front_end, saved.bits), saved.weight.type);
    saved.input = members.divisible(front_end, saved.input);
  }
  const Pass pass{front_end, members};
  pass.for_members([&](std::size_t member, LinearPaths& paths) {
    observe(front_end, paths, wants_input ? Product::input_gradient : Product::weight_gradient, 0,
            pass.tokens(gradient, member));
  });
  measure_product(pass, Product::forward, gradient, Split::by_offsets);
  LowOperand kept_gradient;  // where both GEMMs take the same
  Gradients gradients;
  if (wants_input) {
    gradients.input = input_gradient(pass, gradient, saved, wants_weight, kept_gradient);
    measure_product(pass, Product::input_gradient, gradients.input, Split::by_offsets);
  }
  if (wants_weight) {
    gradients.weight = weight_gradient(pass, gradient, saved, kept_gradient);
    measure_product(pass, Product::weight_gradient, gradients.weight, Split::evenly);
  }
  return gradients;
}

}  // namespace gnmr::low
