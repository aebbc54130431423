// SPDX-License-Identifier: Apache-2.0
#include "gnmr/low/operand.h"

#include <algorithm>
#include <optional>
#include <string>

#include "gnmr/core/error.h"
#include "gnmr/kernels/delayed_scales.h"
#include "gnmr/kernels/device.h"
#include "gnmr/low/device_numbers.h"
#include "gnmr/recipes/fp8_rule.h"

namespace gnmr::low {
namespace {

LowPathCall call_of(const LinearPaths& paths, Product product) {
  const StepClock clock = clock_of(paths);
  return {paths.layer, product, clock.step, clock.micro_batch, clock.rerun};
}

bool is_delayed(const CastRule& rule) { return rule.grouping == recipes::Grouping::delayed; }

/// Where a hook has changed what is quantized, as a part of that, it is measured against the operand as it was.
void measure_changed(const FrontEnd& front_end, const Matrix& before, const Matrix& changed, const Matrix& after,
                     formats::Statistics& seen) {
  // What was changed was beyond the format; what overflowed besides is among it.
  seen.overflowed = std::max(seen.overflowed, front_end.count_differences(before, changed));
  seen.squared_error = squared_norm(front_end, front_end.subtract(before, after));
  seen.squared_values = squared_norm(front_end, before);
}

/// An operand on its way to its low path.
struct Casting {
  const FrontEnd& front_end;
  LinearPaths& paths;
  const OperandUse& use;
  const CastRule& rule;
  const Matrix& matrix;  // what evidence compares with
  const Matrix& source;  // what is quantized
  CastCounts& counts;

  bool was_changed() const { return !source.is_same(matrix); }
};

/// The scale of delayed scaling; on a device one that is not for FP8 data is awaited.
std::optional<float> delayed_scale(const FrontEnd& front_end, LinearPaths& paths, const OperandUse& use,
                                   const Matrix& source) {
  if (source.place == Place::device) {
    const float* const scale = numbers_of(front_end, paths, source).delayed_scale(use.product, use.place);
    if (scale == nullptr) return std::nullopt;
    float found = 0;
    kernels::copy_to_host(scale, &found, sizeof found, front_end.stream(source));
    return found;
  }
  return paths.amax.scale(use.product, use.place);
}

/// The evidence of a layer that takes an operand, whoever counted it.
void add_evidence(const FrontEnd& front_end, LinearPaths& paths, const OperandUse& use, const CastCounts& counts,
                  const Matrix& on) {
  const auto add = [&](Product product, std::size_t place, const formats::Statistics* on_device) {
    if (on_device == nullptr) {
      paths.measured[index_of(product)].casts[place] += counts.on_host;
      return;
    }
    kernels::copy_on_device(on_device, numbers_of(front_end, paths, on).statistics(product, place), sizeof *on_device,
                            front_end.stream(on));
  };
  add(use.product, use.place, counts.on_device[0]);
  if (use.shared) add(use.other_product, use.other_place, counts.on_device[1]);
}

/// The operand as numbers.
Matrix cast_to_numbers(const Casting& casting) {
  const FrontEnd& front_end = casting.front_end;
  const OperandUse& use = casting.use;
  LinearPaths& paths = casting.paths;
  NumberCast cast{.rule = casting.rule,
                  .sum_over = sums_over(use.product)[use.place],
                  .seed = seed_of(paths, use.product, use.place),
                  .transform_seed = seed_of(paths, use.product, 2)};
  const Matrix source = front_end.to_type(casting.source, Type::float32);
  if (is_delayed(casting.rule)) {
    const std::optional<float> scale = delayed_scale(front_end, paths, use, source);
    // Before the first observation the scale is that of the matrix itself.
    cast.delayed_scale = scale ? *scale : formats::float32_scale(casting.rule.format, finite_amax(front_end, source));
  }
  if (!counts_casts(paths)) return quantize_to_numbers(front_end, source, cast);
  formats::Statistics& seen = casting.counts.on_host;
  cast.statistics = &seen;
  Matrix result = quantize_to_numbers(front_end, source, cast);
  if (casting.was_changed() && casting.rule.hadamard == 0) {
    measure_changed(front_end, front_end.to_type(casting.matrix, Type::float32), source, result, seen);
  }
  casting.counts.counted = true;
  add_evidence(front_end, paths, use, casting.counts, source);
  return result;
}

/// Whether quantizing for this GEMM also finds the amax for the history.
bool observes_in_cast(const LinearPaths& paths, Product product, std::size_t place, const Matrix& matrix) {
  const Operand operand = recipes::operands_of(product)[place];
  const Product first = operand == Operand::output_gradient ? Product::input_gradient : Product::forward;
  // Without elements nothing is launched, so nothing would find an amax.
  if (matrix.count() == 0 || product != first || paths.hook != nullptr || !paths.low[index_of(product)]) return false;
  const auto& rule = paths.recipe->rule(product, place);
  return rule && is_delayed(*rule) && can_quantize_to_codes(matrix, *rule);
}

bool is_observed(const LinearPaths& paths, Operand operand) {
  return paths.observing && paths.recipe != nullptr && paths.recipe->uses_delayed(operand);
}

/// Calls `find(where)`, which writes an amax to the memory of the matrix's device; the largest of the step's
/// micro-batches is kept.
template <class Find>
void keep_amax(const FrontEnd& front_end, LinearPaths& paths, Operand operand, const Matrix& matrix, Find find) {
  if (matrix.place == Place::host) {
    float found = 0;
    find(&found);
    paths.amax.note(operand, found);
    return;
  }
  const LayerNumbers numbers = numbers_of(front_end, paths, matrix);
  const bool is_first = clock_of(paths).micro_batch == 0 && !numbers.has_seen(operand);
  float* const kept = numbers.amax(operand);
  if (is_first) {
    find(kept);
    return;
  }
  const Matrix found = front_end.empty_vector(matrix, Type::float32, 1);
  find(found.floats());
  kernels::keep_larger(found.floats(), kept, 1, front_end.stream(matrix));
}

/// Evidence of a changed operand needs its numbers: the laboratory's price is a wait for the device.
void measure_changed_codes(const Casting& casting, const Fp8Matrix& codes, bool by_rows, Product product,
                           std::size_t place) {
  const FrontEnd& front_end = casting.front_end;
  Matrix values = front_end.values_of(by_rows ? codes.by_rows : codes.by_columns, codes.grouping);
  if (!by_rows) values = values.transposed();
  formats::Statistics seen;
  seen.elements = static_cast<std::uint64_t>(casting.matrix.count());
  measure_changed(front_end, front_end.to_type(casting.matrix, Type::float32),
                  front_end.to_type(casting.source, Type::float32), values, seen);
  casting.paths.measured[index_of(product)].casts[place] += seen;
}

/// What FP8 data need of a layer's numbers: its scale, and where statistics go.
struct CodeNumbers {
  const float* scale = nullptr;
  formats::Statistics* own = nullptr;
  formats::Statistics* other = nullptr;
};

CodeNumbers code_numbers(const Casting& casting) {
  const OperandUse& use = casting.use;
  LinearPaths& paths = casting.paths;
  const bool counts = counts_casts(paths) && !casting.was_changed() && casting.source.count() > 0;
  CodeNumbers found;
  if (casting.source.place == Place::host) {
    // The references of kernels; statistics are the numbers' own.
    const formats::DelayedState& state = paths.amax.delayed[index_of(use.product)][use.place];
    if (is_delayed(casting.rule) && state.observations > 0) found.scale = &state.scale;
    return found;
  }
  const LayerNumbers numbers = numbers_of(casting.front_end, paths, casting.source);
  if (is_delayed(casting.rule)) found.scale = numbers.delayed_scale(use.product, use.place);
  if (!counts) return found;
  found.own = numbers.statistics(use.product, use.place);
  if (use.shared) found.other = numbers.statistics(use.other_product, use.other_place);
  casting.counts = {.counted = true, .on_device = {found.own, found.other}};
  return found;
}

/// The operand as FP8 data, for one GEMM or both sides for two.
Fp8Matrix cast_to_codes(const Casting& casting) {
  const OperandUse& use = casting.use;
  LinearPaths& paths = casting.paths;
  const bool rows_first = sums_over(use.product)[use.place] == SumOver::columns;
  const CodeNumbers numbers = code_numbers(casting);
  CodeCast cast{.rule = casting.rule,
                .by_rows = rows_first || use.shared,
                .by_columns = !rows_first || use.shared,
                .given_scale = numbers.scale,
                .statistics_by_rows = rows_first ? numbers.own : numbers.other,
                .statistics_by_columns = rows_first ? numbers.other : numbers.own};
  const Operand operand = recipes::operands_of(use.product)[use.place];
  Fp8Matrix codes;
  if (is_observed(paths, operand) && observes_in_cast(paths, use.product, use.place, casting.source)) {
    keep_amax(casting.front_end, paths, operand, casting.source, [&](float* amax) {
      cast.amax = amax;
      codes = quantize_to_codes(casting.front_end, casting.source, cast);
    });
  } else {
    codes = quantize_to_codes(casting.front_end, casting.source, cast);
  }
  if (counts_casts(paths) && casting.was_changed()) {
    measure_changed_codes(casting, codes, rows_first, use.product, use.place);
    if (use.shared) measure_changed_codes(casting, codes, !rows_first, use.other_product, use.other_place);
  }
  return codes;
}

/// Whether every layer with this rule makes the same of a matrix.
bool is_of_no_layer(const CastRule& rule) {
  return rule.rounding == formats::Rounding::nearest_even && rule.hadamard == 0 && !is_delayed(rule);
}

}  // namespace

void observe(const FrontEnd& front_end, LinearPaths& paths, Product product, std::size_t place, const Matrix& given) {
  const Operand operand = recipes::operands_of(product)[place];
  if (!is_observed(paths, operand) || observes_in_cast(paths, product, place, given)) return;
  const Matrix matrix =
      paths.hook != nullptr ? paths.hook->observed_for(call_of(paths, product), operand, given) : given;
  if (matrix.place == Place::device) {
    if (matrix.count() == 0) return;
    keep_amax(front_end, paths, operand, matrix, [&](float* amax) { find_amax(front_end, matrix, amax); });
    return;
  }
  paths.amax.note(operand, finite_amax(front_end, matrix));
}

bool can_share_cast(const LinearPaths& paths, const OperandUse& use, const Matrix& matrix) {
  if (paths.recipe == nullptr || !paths.low[index_of(use.product)] || !paths.low[index_of(use.other_product)]) {
    return false;
  }
  const auto& rule = paths.recipe->rule(use.product, use.place);
  if (rule != paths.recipe->rule(use.other_product, use.other_place)) return false;
  if (!rule) return true;
  // A hook may do something else to each GEMM's operand; what does not depend on the direction is shared all the same,
  // as a backend would.
  const bool is_plain = paths.hook == nullptr || !paths.hook->changes_operands();
  return recipes::can_share(*rule, is_plain && can_quantize_to_codes(matrix, *rule));
}

bool counts_casts(const LinearPaths& paths) { return paths.measure_casts && paths.observing; }

LowOperand low_operand(const FrontEnd& front_end, LinearPaths& paths, const OperandUse& use, const Matrix& matrix,
                       CastCounts* counts) {
  const auto& rule = paths.recipe->rule(use.product, use.place);
  const Operand operand = recipes::operands_of(use.product)[use.place];
  const LowPathCall call = call_of(paths, use.product);
  MatrixHook* const hook = paths.hook;
  const Matrix before = hook != nullptr ? hook->before_quantizing(call, operand, matrix) : matrix;
  LowOperand low;
  if (rule) {
    const Matrix source = hook != nullptr ? hook->while_quantizing(call, operand, before) : before;
    CastCounts uncounted;
    const Casting casting{front_end, paths, use, *rule, before, source, counts != nullptr ? *counts : uncounted};
    if (can_quantize_to_codes(source, *rule)) {
      low.codes = cast_to_codes(casting);
    } else {
      low.values = cast_to_numbers(casting);
    }
  } else {
    low.values = before;
  }
  if (hook != nullptr && (low.values.defined() || hook->changes_quantized(call, operand))) {
    low.values = hook->after_quantizing(call, operand, values_for(front_end, low, sums_over(use.product)[use.place]));
    low.codes = {};
  }
  return low;
}

Matrix low_product(const FrontEnd& front_end, const LinearPaths& paths, Product product, const LowOperand& left,
                   const LowOperand& right, Type type) {
  return after_gemm(paths, product, low_gemm(front_end, product, left, right, type));
}

Matrix after_gemm(const LinearPaths& paths, Product product, const Matrix& result) {
  return paths.hook != nullptr ? paths.hook->after_gemm(call_of(paths, product), result) : result;
}

Matrix product_by_rules(const FrontEnd& front_end, const LinearPaths& paths, Product product,
                        const recipes::GemmRules& rules, const Matrix& left, const Matrix& right) {
  const auto sums = sums_over(product);
  const auto operand = [&](std::size_t place, const Matrix& matrix) {
    const std::optional<CastRule>& rule = rules[place];
    LowOperand made;
    if (!rule) {
      made.values = matrix;
    } else if (can_quantize_to_codes(matrix, *rule)) {
      const bool by_rows = sums[place] == SumOver::columns;
      made.codes = quantize_to_codes(front_end, matrix, {.rule = *rule, .by_rows = by_rows, .by_columns = !by_rows});
    } else {
      made.values = quantize_to_numbers(front_end, front_end.to_type(matrix, Type::float32),
                                        {.rule = *rule,
                                         .sum_over = sums[place],
                                         .seed = seed_of(paths, product, place),
                                         .transform_seed = seed_of(paths, product, 2)});
    }
    return made;
  };
  return low_gemm(front_end, product, operand(0, left), operand(1, right), left.type);
}

LowOperand SharedOperands::operand(const FrontEnd& front_end, LinearPaths& paths, const OperandUse& use,
                                   const Matrix& matrix) {
  const auto& rule = paths.recipe->rule(use.product, use.place);
  if (!rule || paths.hook != nullptr || !is_of_no_layer(*rule)) return low_operand(front_end, paths, use, matrix);
  Entry& entry = entries_[use.shared ? 1 : 0];
  const bool counts = counts_casts(paths);
  const bool is_there = entry.operand.defined() && entry.rule == *rule && (entry.counts.counted || !counts);
  if (!is_there) {
    entry = {.rule = *rule};
    entry.operand = low_operand(front_end, paths, use, matrix, &entry.counts);
  } else if (counts) {
    add_evidence(front_end, paths, use, entry.counts, matrix);
  }
  return entry.operand;
}

SavedMatrix SharedOperands::in_8_bits(const FrontEnd& front_end, const Matrix& matrix) {
  if (!bits_.codes.defined()) bits_ = save_in_8_bits(front_end, matrix);
  return bits_;
}

Matrix SharedOperands::projected(const FrontEnd& front_end, const Matrix& matrix, std::uint64_t signs) {
  if (!projected_.defined() || projected_signs_ != signs) projected_ = project_input(front_end, matrix, signs);
  projected_signs_ = signs;
  return projected_;
}

}  // namespace gnmr::low
