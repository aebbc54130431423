// SPDX-License-Identifier: Apache-2.0
#include "gnmr/torch/cast_operators.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>

#include <cmath>
#include <limits>

#include "gnmr/core/error.h"
#include "gnmr/formats/scaling.h"
#include "gnmr/recipes/host_cast.h"

namespace gnmr::nn {
namespace {

using formats::Format;
using formats::Layout;
using recipes::CastRule;
using recipes::Grouping;

constexpr double kSmallestScale = 0x1p-126;

at::Tensor bits_of(const at::Tensor& values) { return values.view(at::kInt); }
at::Tensor floats_of(const at::Tensor& bits) { return bits.view(at::kFloat); }

/// True quotients: on a CUDA device a number of the host as divisor would be multiplied by its rounded inverse.
at::Tensor divided(const at::Tensor& values, double divisor) {
  return values / at::full({}, divisor, values.options());
}

/// The power of two below each magnitude, from its exponent bits; 0 for denormals.
at::Tensor power_below(const at::Tensor& magnitude) {
  return floats_of(at::bitwise_and(bits_of(magnitude), 0x7f800000));
}

/// Each value rounded to the nearest of the format, ties to even, the grid going on beyond the largest value.
at::Tensor round_on_grid(const at::Tensor& values, const Layout& layout) {
  const at::Tensor magnitude = values.abs();
  const at::Tensor power =
      at::clamp(power_below(magnitude), std::ldexp(1.0, layout.min_exponent), std::ldexp(1.0, layout.max_exponent));
  // Where the last place of a float is worth one step, the addition itself rounds.
  const at::Tensor shift = power * std::ldexp(1.0, 23 - layout.mantissa_bits);
  return (magnitude + shift) - shift;
}

/// Each value as the format holds it.
at::Tensor round_to_format(const at::Tensor& values, const CastRule& rule, at::Tensor& overflowed) {
  const Layout layout = formats::layout_of(rule.format);
  const formats::OverflowTarget target = formats::overflow_target(rule.format, rule.overflow);
  at::Tensor rounded =
      rule.format == Format::bfloat16 ? values.abs().to(at::kBFloat16).to(at::kFloat) : round_on_grid(values, layout);
  overflowed = rounded > layout.max;
  rounded = rounded.masked_fill(overflowed, target.value);
  rounded = at::where(values.signbit(), -rounded, rounded);
  return layout.is_integer ? rounded + 0.0 : rounded;
}

/// A matrix cut into groups: [rows of groups, rows in a group, columns of groups, columns in a group].
at::Tensor in_groups(const at::Tensor& matrix, std::int64_t group_rows, std::int64_t group_cols) {
  const std::int64_t below = (group_rows - matrix.size(0) % group_rows) % group_rows;
  const std::int64_t beside = (group_cols - matrix.size(1) % group_cols) % group_cols;
  const at::Tensor padded = below + beside == 0 ? matrix : at::constant_pad_nd(matrix, {0, beside, 0, below});
  return padded.reshape({padded.size(0) / group_rows, group_rows, padded.size(1) / group_cols, group_cols});
}

struct GroupShape {
  std::int64_t rows;
  std::int64_t cols;
};

GroupShape group_shape(const CastRule& rule, const at::Tensor& matrix) {
  switch (rule.grouping) {
    case Grouping::row:
      return {1, matrix.size(1)};
    case Grouping::tile:
      return {1, 128};
    case Grouping::block:
      return {128, 128};
    case Grouping::mx:
      return {1, 32};
    case Grouping::nvfp4:
      return {1, 16};
    case Grouping::none:
    case Grouping::tensor:
    case Grouping::delayed:
      break;
  }
  return {matrix.size(0), matrix.size(1)};
}

at::Tensor mx_scales(const at::Tensor& amax, const CastRule& rule) {
  const Layout layout = formats::layout_of(rule.format);
  int exponent_of_max = 0;
  const double fraction_of_max = std::frexp(layout.max, &exponent_of_max);
  const auto [fraction, exponent] = at::frexp(amax);
  at::Tensor power = exponent - exponent_of_max;
  if (rule.mx_round_up) power = power + (fraction > fraction_of_max).to(at::kInt);
  const at::Tensor code = at::clamp(power, -127, 127) + 127;
  const at::Tensor bits = at::where(code == 0, 0x400000, code * (1 << 23)).to(at::kInt);
  return at::where(amax > 0, floats_of(bits), at::ones_like(amax));
}

at::Tensor nvfp4_scales(const at::Tensor& amax, const CastRule& rule) {
  const at::Tensor tensor_amax = amax.max();
  const at::Tensor tensor_scale =
      at::where(tensor_amax > 0, divided(tensor_amax, 448.0 * 6.0).clamp_min(0x1p-117), at::ones_like(tensor_amax));
  const Layout e4m3 = formats::layout_of(Format::e4m3);
  const at::Tensor wanted = divided(amax, formats::layout_of(rule.format).max) / tensor_scale;
  return at::clamp(round_on_grid(wanted, e4m3), 0x1p-9, e4m3.max) * tensor_scale;
}

at::Tensor finite_scales(const at::Tensor& groups, const low::NumberCast& cast) {
  const CastRule& rule = cast.rule;
  if (rule.grouping == Grouping::none) return at::full({1, 1, 1, 1}, 1.0, groups.options());
  if (rule.grouping == Grouping::delayed) return at::full({1, 1, 1, 1}, cast.delayed_scale, groups.options());
  const at::Tensor magnitude = groups.abs();
  const at::Tensor finite = magnitude.masked_fill(magnitude.isfinite().logical_not(), 0);
  const at::Tensor amax = finite.amax({1, 3}, /*keepdim=*/true);
  if (rule.grouping == Grouping::mx) return mx_scales(amax, rule);
  if (rule.grouping == Grouping::nvfp4) return nvfp4_scales(amax, rule);
  const at::Tensor scale = divided(amax, formats::layout_of(rule.format).max).clamp_min(kSmallestScale);
  return at::where(amax > 0, scale, at::ones_like(scale));
}

/// The scale of each group; NaN where it holds what the format has no code for.
at::Tensor scales_of(const at::Tensor& groups, const low::NumberCast& cast) {
  const at::Tensor scales = finite_scales(groups, cast);
  if (formats::layout_of(cast.rule.format).has_nan()) return scales;
  at::Tensor unknown = groups.isnan();
  if (cast.rule.overflow == formats::Overflow::non_finite) unknown = unknown.logical_or(groups.isinf());
  return at::where(unknown.amax({1, 3}, /*keepdim=*/true), std::numeric_limits<float>::quiet_NaN(), scales);
}

void measure(const at::Tensor& before, const at::Tensor& after, const at::Tensor& overflowed,
             formats::Statistics& statistics) {
  const at::Tensor finite = before.isfinite();
  const at::Tensor both = finite.logical_and(after.isfinite());
  const at::Tensor error = (before.to(at::kDouble) - after.to(at::kDouble)).masked_fill(both.logical_not(), 0);
  const at::Tensor values = before.masked_fill(both.logical_not(), 0).to(at::kDouble);
  statistics.elements += static_cast<std::uint64_t>(before.numel());
  statistics.non_finite += static_cast<std::uint64_t>(finite.logical_not().sum().item<std::int64_t>());
  statistics.overflowed += static_cast<std::uint64_t>(overflowed.sum().item<std::int64_t>());
  const at::Tensor flushed = finite.logical_and(before != 0).logical_and(after == 0);
  statistics.flushed += static_cast<std::uint64_t>(flushed.sum().item<std::int64_t>());
  statistics.squared_error += (error * error).sum().item<double>();
  statistics.squared_values += (values * values).sum().item<double>();
}

}  // namespace

at::Tensor multiply_stretches(const at::Tensor& matrix, const std::vector<float>& entries, std::int64_t size) {
  at::Tensor result = matrix.clone(at::MemoryFormat::Contiguous);
  const std::int64_t whole = matrix.size(1) / size * size;
  if (whole == 0) return result;
  const at::Tensor transform = at::tensor(entries).view({size, size}).to(matrix.device());
  const at::Tensor part = result.narrow(1, 0, whole).reshape({matrix.size(0), whole / size, size});
  result.narrow(1, 0, whole).copy_(at::matmul(part, transform).view({matrix.size(0), whole}));
  return result;
}

at::Tensor cast_operand_with_operators(const at::Tensor& matrix, const low::NumberCast& cast) {
  if (cast.rule.rounding == formats::Rounding::stochastic) {
    throw Error("stochastic rounding is only on the CPU so far: use --device cpu, or a recipe without it");
  }
  const bool turned = cast.sum_over == low::SumOver::rows && !cast.rule.ignores_direction();
  at::Tensor facing = turned ? matrix.t() : matrix;
  if (cast.rule.hadamard != 0) {
    const std::vector<float> entries = recipes::hadamard_matrix(cast.rule.hadamard, cast.transform_seed);
    facing = multiply_stretches(facing, entries, cast.rule.hadamard);
  }
  const GroupShape shape = group_shape(cast.rule, facing);
  const at::Tensor groups =
      in_groups(facing, std::max<std::int64_t>(shape.rows, 1), std::max<std::int64_t>(shape.cols, 1));
  const at::Tensor scales = scales_of(groups, cast);
  at::Tensor overflowed;
  const at::Tensor rounded = round_to_format(groups / scales, cast.rule, overflowed) * scales;
  const auto back = [&](const at::Tensor& grouped) {
    const at::Tensor padded = grouped.reshape({groups.size(0) * groups.size(1), groups.size(2) * groups.size(3)});
    return padded.narrow(0, 0, facing.size(0)).narrow(1, 0, facing.size(1));
  };
  const at::Tensor result = back(rounded);
  if (cast.statistics != nullptr) measure(facing, result, back(overflowed), *cast.statistics);
  return turned ? result.t() : result;
}

}  // namespace gnmr::nn
