// SPDX-License-Identifier: Apache-2.0
#include "gnmr/low/gemm.h"

#include <optional>

#include "gnmr/kernels/tile_product.h"
#include "gnmr/recipes/fp8_rule.h"

namespace gnmr::low {
namespace {

using recipes::Grouping;

/// A side [m, k] as a GEMM sees it.
kernels::Fp8Facing facing(const Fp8Side& side, Grouping grouping) {
  return {.format = side.codes.type == Type::e5m2 ? formats::Format::e5m2 : formats::Format::e4m3,
          .groups = recipes::fp8_groups<kernels::CastGroups>(grouping, false),
          .rows = static_cast<std::uint64_t>(side.codes.rows),
          .depth = static_cast<std::uint64_t>(side.codes.columns)};
}

/// Our own kernel.
Matrix multiply_in_tiles(const FrontEnd& front_end, const Fp8Side& left, const Fp8Side& right, Grouping right_grouping,
                         Type type) {
  const Matrix result = front_end.empty(left.codes, type, left.codes.rows, right.codes.rows);
  const kernels::TileProductTask task{
      .a = left.codes.bytes(),
      .a_scales = left.scales.floats(),
      .b = right.codes.bytes(),
      .b_scales = right.scales.floats(),
      .b_groups = right_grouping == Grouping::tile ? kernels::CastGroups::tile : kernels::CastGroups::block,
      .rows = static_cast<std::uint64_t>(result.rows),
      .columns = static_cast<std::uint64_t>(result.columns),
      .depth = static_cast<std::uint64_t>(left.codes.columns),
      .product = result.data,
      .type = kernel_type(type)};
  kernels::multiply_tiles(task, front_end.stream(result));
  return result;
}

/// Of two operands that are both FP8 data; undefined where nobody multiplies these.
Matrix gemm_of_codes(const FrontEnd& front_end, recipes::Product product, const LowOperand& left,
                     const LowOperand& right, Type type) {
  const auto [left_sum, right_sum] = sums_over(product);
  const Fp8Side& left_side = left.codes.side(left_sum);
  const Fp8Side& right_side = right.codes.side(right_sum);
  if (left_side.codes.place != Place::device || left_side.codes.count() * right_side.codes.rows == 0) return {};
  const Type made = is_operand_type(type) ? type : Type::float32;
  kernels::Fp8Plan plan = plan_gemm(left_side, left.codes.grouping, right_side, right.codes.grouping, made);
  if (plan.by == kernels::Multiplier::numbers) return {};
  plan.may_sum_fast = plan.may_sum_fast && recipes::may_sum_fast(product);
  return front_end.to_type(multiply_codes(front_end, left_side, right_side, right.codes.grouping, made, plan), type);
}

}  // namespace

Matrix values_for(const FrontEnd& front_end, const LowOperand& operand, SumOver sum_over) {
  if (operand.values.defined()) return operand.values;
  const Matrix values = front_end.values_of(operand.codes.side(sum_over), operand.codes.grouping);
  return sum_over == SumOver::columns ? values : values.transposed();
}

kernels::Fp8Plan plan_gemm(const Fp8Side& left, Grouping left_grouping, const Fp8Side& right, Grouping right_grouping,
                           Type type) {
  return kernels::plan_fp8_product(facing(left, left_grouping), facing(right, right_grouping), kernel_type(type),
                                   kernels::fp8_ability());
}

Matrix multiply_codes(const FrontEnd& front_end, const Fp8Side& left, const Fp8Side& right, Grouping right_grouping,
                      Type type, kernels::Fp8Plan plan) {
  if (plan.by == kernels::Multiplier::own) return multiply_in_tiles(front_end, left, right, right_grouping, type);
  return front_end.multiply_codes(left, right, right_grouping, type, plan);
}

Matrix low_gemm(const FrontEnd& front_end, recipes::Product product, const LowOperand& left, const LowOperand& right,
                Type type) {
  if (!left.values.defined() && !right.values.defined()) {
    const Matrix result = gemm_of_codes(front_end, product, left, right, type);
    if (result.defined()) return result;
  }
  const auto [left_sum, right_sum] = sums_over(product);
  const Matrix left_values = front_end.to_type(values_for(front_end, left, left_sum), Type::float32);
  const Matrix right_values = front_end.to_type(values_for(front_end, right, right_sum), Type::float32);
  return front_end.multiply_numbers(left_sum == SumOver::columns ? left_values : left_values.transposed(),
                                    right_sum == SumOver::columns ? right_values.transposed() : right_values, type);
}

}  // namespace gnmr::low
