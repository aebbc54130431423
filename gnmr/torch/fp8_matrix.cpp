// SPDX-License-Identifier: Apache-2.0
#include "gnmr/torch/fp8_matrix.h"

#include <ATen/ops/_scaled_mm.h>
#include <ATen/ops/empty.h>

#include <optional>

#include "gnmr/kernels/casts.h"
#include "gnmr/kernels/device.h"
#include "gnmr/kernels/fp8_product.h"
#include "gnmr/kernels/tile_product.h"
#include "gnmr/recipes/fp8_rule.h"
#include "gnmr/torch/device_stream.h"

namespace gnmr::nn {
namespace {

using formats::Format;
using recipes::CastRule;
using recipes::Grouping;

constexpr std::int64_t kGroup = kernels::kFp8Group;

kernels::CastGroups groups_of(Grouping grouping, bool given = false) {
  return recipes::fp8_groups<kernels::CastGroups>(grouping, given);
}

/// A side [m, k] as a product sees it.
kernels::Fp8Facing facing(const Fp8Side& side, Grouping grouping) {
  return {.format = side.codes.scalar_type() == at::kFloat8_e5m2 ? Format::e5m2 : Format::e4m3,
          .groups = groups_of(grouping),
          .rows = static_cast<std::uint64_t>(side.codes.size(0)),
          .depth = static_cast<std::uint64_t>(side.codes.size(1))};
}

/// The scales of a side [m, k], as the kernels lay them.
at::Tensor empty_scales(Grouping grouping, std::int64_t m, std::int64_t k, const at::TensorOptions& options) {
  const auto [first, second] =
      kernels::fp8_scale_shape(groups_of(grouping), static_cast<std::uint64_t>(m), static_cast<std::uint64_t>(k));
  if (grouping == Grouping::tile || grouping == Grouping::block) {
    return at::empty({static_cast<std::int64_t>(first), static_cast<std::int64_t>(second)}, options);
  }
  return at::empty({static_cast<std::int64_t>(first)}, options);
}

kernels::CastTask task_of(const at::Tensor& matrix, const CastRule& rule) {
  return {.matrix = matrix.const_data_ptr(),
          .type = matrix.scalar_type() == at::kFloat ? kernels::ElementType::float32 : kernels::ElementType::bfloat16,
          .rows = static_cast<std::uint64_t>(matrix.size(0)),
          .columns = static_cast<std::uint64_t>(matrix.size(1)),
          .format = rule.format};
}

void run(const kernels::CastTask& task, const at::Tensor& matrix) {
  const at::Tensor workspace =
      at::empty({static_cast<std::int64_t>(kernels::cast_workspace_bytes(task))}, matrix.options().dtype(at::kByte));
  kernels::cast_to_fp8(task, workspace.mutable_data_ptr(), current_stream(matrix.device()));
}

std::optional<kernels::ElementType> result_type(at::ScalarType type) {
  if (type == at::kFloat) return kernels::ElementType::float32;
  if (type == at::kBFloat16) return kernels::ElementType::bfloat16;
  return {};
}

/// Our own product.
at::Tensor multiply_in_tiles(const Fp8Side& left, const Fp8Side& right, Grouping right_grouping, at::ScalarType type) {
  at::Tensor result = at::empty({left.codes.size(0), right.codes.size(0)}, left.codes.options().dtype(type));
  const auto bytes = [](const at::Tensor& codes) { return static_cast<const std::uint8_t*>(codes.const_data_ptr()); };
  const kernels::TileProductTask task{
      .a = bytes(left.codes),
      .a_scales = left.scales.const_data_ptr<float>(),
      .b = bytes(right.codes),
      .b_scales = right.scales.const_data_ptr<float>(),
      .b_groups = right_grouping == Grouping::tile ? kernels::CastGroups::tile : kernels::CastGroups::block,
      .rows = static_cast<std::uint64_t>(result.size(0)),
      .columns = static_cast<std::uint64_t>(result.size(1)),
      .depth = static_cast<std::uint64_t>(left.codes.size(1)),
      .product = result.mutable_data_ptr(),
      .type = type == at::kFloat ? kernels::ElementType::float32 : kernels::ElementType::bfloat16};
  kernels::multiply_tiles(task, current_stream(result.device()));
  return result;
}

/// Scales of 128 x 128 as those of 1 x 128: [tiles, n].
at::Tensor as_tiles(const at::Tensor& block_scales, std::int64_t n) {
  return block_scales.t().repeat_interleave(kGroup, 1).narrow(1, 0, n).contiguous();
}

}  // namespace

bool can_cast_to_fp8(const at::Tensor& matrix, const CastRule& rule) {
  return matrix.is_cuda() && matrix.dim() == 2 && matrix.numel() > 0 &&
         (matrix.scalar_type() == at::kFloat || matrix.scalar_type() == at::kBFloat16) &&
         recipes::has_fp8_codes(rule) && kernels::available();
}

Fp8Matrix cast_to_fp8(const at::Tensor& matrix, const Fp8Cast& cast) {
  const at::Tensor source = matrix.contiguous();
  const auto type = cast.rule.format == Format::e4m3 ? at::kFloat8_e4m3fn : at::kFloat8_e5m2;
  const bool given = cast.given_scale.defined();
  kernels::CastTask task = task_of(source, cast.rule);
  task.groups = groups_of(cast.rule.grouping, given);
  task.given_scale = given ? cast.given_scale.const_data_ptr<float>() : nullptr;
  task.amax = cast.amax;
  Fp8Matrix result{.by_rows = {}, .by_columns = {}, .grouping = cast.rule.grouping};
  const auto want = [&](Fp8Side& side, kernels::CastOutput& output, std::int64_t m, std::int64_t k,
                        formats::Statistics* statistics) {
    side.codes = at::empty({m, k}, source.options().dtype(type));
    output.codes = static_cast<std::uint8_t*>(side.codes.mutable_data_ptr());
    output.statistics = statistics;
    // A given scale is copied too: products want it at an alignment of its own.
    side.scales = empty_scales(cast.rule.grouping, m, k, source.options().dtype(at::kFloat));
    output.scales = side.scales.mutable_data_ptr<float>();
  };
  const std::int64_t rows = source.size(0);
  const std::int64_t columns = source.size(1);
  if (cast.by_rows) want(result.by_rows, task.by_rows, rows, columns, cast.statistics_by_rows);
  if (cast.by_columns) want(result.by_columns, task.by_columns, columns, rows, cast.statistics_by_columns);
  run(task, source);
  return result;
}

void find_amax(const at::Tensor& matrix, float* amax) {
  const at::Tensor source = matrix.contiguous();
  kernels::CastTask task = task_of(source, {});
  task.amax = amax;
  run(task, source);
}

bool can_multiply(const Fp8Side& left, Grouping left_grouping, const Fp8Side& right, Grouping right_grouping) {
  const kernels::Fp8Plan plan = kernels::plan_fp8_product(facing(left, left_grouping), facing(right, right_grouping),
                                                          std::nullopt, kernels::fp8_ability());
  return plan.by != kernels::Multiplier::numbers;
}

at::Tensor multiply(const Fp8Side& left, const Fp8Side& right, Grouping right_grouping, at::ScalarType type,
                    bool fast) {
  // Blocks are multiplied by tiles, all others by their like.
  const Grouping left_grouping = right_grouping == Grouping::block ? Grouping::tile : right_grouping;
  const kernels::Fp8Plan plan = kernels::plan_fp8_product(facing(left, left_grouping), facing(right, right_grouping),
                                                          result_type(type), kernels::fp8_ability());
  if (plan.by == kernels::Multiplier::own) return multiply_in_tiles(left, right, right_grouping, type);
  at::Tensor left_scales = left.scales;
  at::Tensor right_scales = right.scales;
  switch (right_grouping) {
    case Grouping::row:
      left_scales = left_scales.view({-1, 1});
      right_scales = right_scales.view({1, -1});
      break;
    case Grouping::tile:
      left_scales = left_scales.t();
      break;
    case Grouping::block:
      left_scales = left_scales.t();
      right_scales = plan.spreads_blocks ? as_tiles(right_scales, right.codes.size(0)) : right_scales.t();
      break;
    default:
      break;
  }
  return at::_scaled_mm(left.codes, right.codes.t(), left_scales, right_scales, {}, {}, type,
                        fast && plan.may_sum_fast);
}

at::Tensor values_of(const Fp8Side& side, Grouping grouping) {
  const at::Tensor codes = side.codes.to(at::kFloat);
  const std::int64_t m = codes.size(0);
  const std::int64_t k = codes.size(1);
  switch (grouping) {
    case Grouping::row:
      return codes * side.scales.view({-1, 1});
    case Grouping::tile:
      return codes * side.scales.t().repeat_interleave(kGroup, 1).narrow(1, 0, k);
    case Grouping::block:
      return codes *
             side.scales.repeat_interleave(kGroup, 0).narrow(0, 0, m).repeat_interleave(kGroup, 1).narrow(1, 0, k);
    default:
      return codes * side.scales;
  }
}

}  // namespace gnmr::nn
