// SPDX-License-Identifier: Apache-2.0
#include "gnmr/torch/low_operand.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <optional>

#include "gnmr/recipes/fp8_rule.h"
#include "gnmr/recipes/host_cast.h"
#include "gnmr/torch/device_numbers.h"
#include "gnmr/torch/squared_norm.h"

namespace gnmr::nn {
namespace {

constexpr std::size_t product_index(Product product) { return static_cast<std::size_t>(product); }

StepClock clock_of(const LinearPaths& paths) { return paths.clock != nullptr ? *paths.clock : StepClock{}; }

LowPathCall call_of(const LinearPaths& paths, Product product) {
  const StepClock clock = clock_of(paths);
  return {paths.layer, product, clock.step, clock.micro_batch, clock.rerun};
}

bool is_delayed(const CastRule& rule) { return rule.grouping == recipes::Grouping::delayed; }

/// Where a hook has changed what is cast, as a part of the cast, that is measured against the operand as it was.
void measure_changed(const at::Tensor& before, const at::Tensor& changed, const at::Tensor& after,
                     formats::Statistics& seen) {
  // What was changed was beyond the format; what overflowed besides is among it.
  seen.overflowed =
      std::max(seen.overflowed, static_cast<std::uint64_t>((before != changed).sum().item<std::int64_t>()));
  seen.squared_error = squared_norm(before - after);
  seen.squared_values = squared_norm(before);
}

/// An operand on its way through its cast.
struct Casting {
  LinearPaths& paths;
  const OperandUse& use;
  const CastRule& rule;
  const at::Tensor& matrix;  // what evidence compares with
  const at::Tensor& source;  // what is cast
  CastCounts& counts;

  bool was_changed() const { return !source.is_same(matrix); }
  formats::Statistics& evidence(Product product, std::size_t place) const {
    return paths.measured[product_index(product)].casts[place];
  }
};

/// The scale that delayed scaling remembers; on a device one that is not cast in real codes is awaited.
std::optional<float> delayed_scale(LinearPaths& paths, const OperandUse& use, const at::Tensor& source) {
  if (has_device_numbers(source)) {
    const at::Tensor scale = numbers_of(paths, source.device()).delayed_scale(use.product, use.place);
    return scale.defined() ? std::optional(scale.item<float>()) : std::nullopt;
  }
  const formats::DelayedState& state = paths.delayed[product_index(use.product)][use.place];
  return state.observations > 0 ? std::optional(state.scale) : std::nullopt;
}

/// The cast as numbers.
at::Tensor cast_to_numbers(const Casting& casting) {
  const OperandUse& use = casting.use;
  LinearPaths& paths = casting.paths;
  OperandCast cast{.rule = casting.rule,
                   .sum_over = sums_over(use.product)[use.place],
                   .seed = seed_of(paths, use.product, use.place),
                   .transform_seed = seed_of(paths, use.product, 2)};
  const at::Tensor source = casting.source.to(at::kFloat);
  if (is_delayed(casting.rule)) {
    const std::optional<float> scale = delayed_scale(paths, use, source);
    // Before anything is remembered the scale is that of the tensor itself.
    cast.delayed_scale = scale ? *scale : formats::float32_scale(casting.rule.format, finite_amax(source));
  }
  if (!counts_casts(paths)) return cast_operand(source, cast);
  formats::Statistics& seen = casting.counts.on_host;
  cast.statistics = &seen;
  at::Tensor result = cast_operand(source, cast);
  if (casting.was_changed() && casting.rule.hadamard == 0) {
    measure_changed(casting.matrix.to(at::kFloat), source, result, seen);
  }
  casting.counts.counted = true;
  add_evidence(paths, use, casting.counts, source.device());
  return result;
}

/// Whether the cast for this product also finds the amax that is remembered.
bool observes_in_cast(const LinearPaths& paths, Product product, std::size_t place, const at::Tensor& matrix) {
  const Operand operand = recipes::operands_of(product)[place];
  const Product first = operand == Operand::output_gradient ? Product::input_gradient : Product::forward;
  if (product != first || paths.hook != nullptr || !paths.low[product_index(product)]) return false;
  const auto& rule = paths.recipe->rule(product, place);
  return rule && is_delayed(*rule) && can_cast_to_fp8(matrix, *rule);
}

bool is_observed(const LinearPaths& paths, Operand operand) {
  return paths.observing && paths.recipe != nullptr && paths.recipe->uses_delayed(operand);
}

/// Calls `find(where)`, which writes an amax to device memory; the largest of the step's micro-batches is kept.
template <class Find>
void keep_amax(LinearPaths& paths, Operand operand, const at::Tensor& matrix, Find find) {
  at::Tensor kept = numbers_of(paths, matrix.device()).amax(operand);
  if (clock_of(paths).micro_batch == 0) {
    find(kept.mutable_data_ptr<float>());
    return;
  }
  const at::Tensor found = at::empty_like(kept);
  find(found.mutable_data_ptr<float>());
  at::maximum_out(kept, kept, found);
}

/// Evidence of a changed operand needs its numbers: the laboratory's price is a wait for the device.
void measure_changed_codes(const Casting& casting, const Fp8Matrix& codes, bool by_rows, Product product,
                           std::size_t place) {
  at::Tensor values = values_of(by_rows ? codes.by_rows : codes.by_columns, codes.grouping);
  if (!by_rows) values = values.t();
  formats::Statistics seen;
  seen.elements = static_cast<std::uint64_t>(casting.matrix.numel());
  measure_changed(casting.matrix.to(at::kFloat), casting.source.to(at::kFloat), values, seen);
  casting.evidence(product, place) += seen;
}

/// The cast as real codes, for one product or both sides for two.
Fp8Matrix cast_to_codes(const Casting& casting) {
  const OperandUse& use = casting.use;
  LinearPaths& paths = casting.paths;
  const bool rows_first = sums_over(use.product)[use.place] == SumOver::columns;
  Fp8Cast cast{.rule = casting.rule, .by_rows = rows_first || use.shared, .by_columns = !rows_first || use.shared};
  LayerNumbers numbers = numbers_of(paths, casting.source.device());
  if (is_delayed(casting.rule)) cast.given_scale = numbers.delayed_scale(use.product, use.place);
  if (counts_casts(paths) && !casting.was_changed()) {
    formats::Statistics* const own = numbers.statistics(use.product, use.place);
    formats::Statistics* const other = use.shared ? numbers.statistics(use.other_product, use.other_place) : nullptr;
    cast.statistics_by_rows = rows_first ? own : other;
    cast.statistics_by_columns = rows_first ? other : own;
    casting.counts = {.counted = true, .on_device = {own, other}};
  }
  const Operand operand = recipes::operands_of(use.product)[use.place];
  Fp8Matrix codes;
  if (is_observed(paths, operand) && observes_in_cast(paths, use.product, use.place, casting.source)) {
    keep_amax(paths, operand, casting.source, [&](float* amax) {
      cast.amax = amax;
      codes = cast_to_fp8(casting.source, cast);
    });
  } else {
    codes = cast_to_fp8(casting.source, cast);
  }
  if (counts_casts(paths) && casting.was_changed()) {
    measure_changed_codes(casting, codes, rows_first, use.product, use.place);
    if (use.shared) measure_changed_codes(casting, codes, !rows_first, use.other_product, use.other_place);
  }
  return codes;
}

/// The operand as numbers, of the matrix's shape, as a product sees it that sums over these.
at::Tensor values_for(const LowOperand& operand, SumOver sum_over) {
  if (operand.values.defined()) return operand.values;
  const Fp8Matrix& codes = operand.codes;
  return sum_over == SumOver::columns ? values_of(codes.by_rows, codes.grouping)
                                      : values_of(codes.by_columns, codes.grouping).t();
}

}  // namespace

std::uint64_t seed_of(const LinearPaths& paths, Product product, std::size_t purpose) {
  const StepClock clock = clock_of(paths);
  return recipes::cast_seed({clock.seed, clock.step, clock.micro_batch, paths.layer}, product, purpose);
}

void observe(LinearPaths& paths, Product product, std::size_t place, const at::Tensor& matrix) {
  const Operand operand = recipes::operands_of(product)[place];
  if (!is_observed(paths, operand) || observes_in_cast(paths, product, place, matrix)) return;
  if (has_device_numbers(matrix)) {
    keep_amax(paths, operand, matrix, [&](float* amax) { find_amax(matrix, amax); });
    return;
  }
  float& amax = paths.step_amax[static_cast<std::size_t>(operand)];
  amax = std::max(amax, finite_amax(matrix));
}

bool can_share_cast(const LinearPaths& paths, const OperandUse& use, const at::Tensor& matrix) {
  if (paths.recipe == nullptr || !paths.low[product_index(use.product)] ||
      !paths.low[product_index(use.other_product)]) {
    return false;
  }
  const auto& rule = paths.recipe->rule(use.product, use.place);
  if (rule != paths.recipe->rule(use.other_product, use.other_place)) return false;
  if (!rule) return true;
  // A hook may do something else to each product's operand; casts that do not depend on the direction are shared all
  // the same, as a backend would.
  return recipes::can_share(*rule, paths.hook == nullptr && can_cast_to_fp8(matrix, *rule));
}

bool counts_casts(const LinearPaths& paths) { return paths.measure_casts && paths.observing; }

void add_evidence(LinearPaths& paths, const OperandUse& use, const CastCounts& counts, const c10::Device& device) {
  const auto add = [&](Product product, std::size_t place, const formats::Statistics* on_device) {
    if (on_device == nullptr) {
      paths.measured[product_index(product)].casts[place] += counts.on_host;
      return;
    }
    const auto bytes = [&](const formats::Statistics* statistics) {
      return at::from_blob(const_cast<formats::Statistics*>(statistics), {sizeof(formats::Statistics)},
                           at::TensorOptions().dtype(at::kByte).device(device));
    };
    bytes(numbers_of(paths, device).statistics(product, place)).copy_(bytes(on_device));
  };
  add(use.product, use.place, counts.on_device[0]);
  if (use.shared) add(use.other_product, use.other_place, counts.on_device[1]);
}

LowOperand low_operand(LinearPaths& paths, const OperandUse& use, const at::Tensor& matrix, CastCounts* counts) {
  const auto& rule = paths.recipe->rule(use.product, use.place);
  const Operand operand = recipes::operands_of(use.product)[use.place];
  const LowPathCall call = call_of(paths, use.product);
  LowPathHook* const hook = paths.hook;
  const at::Tensor before = hook != nullptr ? hook->before_cast(call, operand, matrix) : matrix;
  LowOperand low;
  if (rule) {
    const at::Tensor source = hook != nullptr ? hook->in_cast(call, operand, before) : before;
    CastCounts uncounted;
    const Casting casting{paths, use, *rule, before, source, counts != nullptr ? *counts : uncounted};
    if (can_cast_to_fp8(source, *rule)) {
      low.codes = cast_to_codes(casting);
    } else {
      low.values = cast_to_numbers(casting);
    }
  } else {
    low.values = before;
  }
  if (hook != nullptr && (low.values.defined() || hook->changes_casts(call, operand))) {
    low.values = hook->after_cast(call, operand, values_for(low, sums_over(use.product)[use.place]));
    low.codes = {};
  }
  return low;
}

at::Tensor low_product(const LinearPaths& paths, Product product, const LowOperand& left, const LowOperand& right,
                       at::ScalarType type) {
  const auto [left_sum, right_sum] = sums_over(product);
  at::Tensor result;
  if (!left.values.defined() && !right.values.defined()) {
    const Fp8Side& left_side = left_sum == SumOver::columns ? left.codes.by_rows : left.codes.by_columns;
    const Fp8Side& right_side = right_sum == SumOver::columns ? right.codes.by_rows : right.codes.by_columns;
    if (can_multiply(left_side, left.codes.grouping, right_side, right.codes.grouping)) {
      result = multiply(left_side, right_side, right.codes.grouping, type, recipes::may_sum_fast(product));
    }
  }
  if (!result.defined()) {
    const at::Tensor left_values = values_for(left, left_sum).to(at::kFloat);
    const at::Tensor right_values = values_for(right, right_sum).to(at::kFloat);
    result = at::mm(left_sum == SumOver::columns ? left_values : left_values.t(),
                    right_sum == SumOver::columns ? right_values.t() : right_values)
                 .to(type);
  }
  return paths.hook != nullptr ? paths.hook->after_product(call_of(paths, product), result) : result;
}

}  // namespace gnmr::nn
