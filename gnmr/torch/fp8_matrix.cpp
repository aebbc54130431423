// SPDX-License-Identifier: Apache-2.0
#include "gnmr/torch/fp8_matrix.h"

#include <ATen/ops/_scaled_mm.h>
#include <ATen/ops/empty.h>

#include "gnmr/kernels/casts.h"
#include "gnmr/kernels/device.h"
#include "gnmr/kernels/tile_product.h"
#include "gnmr/torch/device_stream.h"

namespace gnmr::nn {
namespace {

using formats::Format;
using recipes::CastRule;
using recipes::Grouping;

constexpr std::int64_t kGroup = 128;     // elements that share a scale in tiles and blocks
constexpr std::int64_t kAlignment = 16;  // of a product's sizes
constexpr int kHopper = 90;

std::int64_t groups_of(std::int64_t count) { return (count + kGroup - 1) / kGroup; }

kernels::CastGroups groups_of(Grouping grouping, bool given) {
  switch (grouping) {
    case Grouping::row:
      return kernels::CastGroups::row;
    case Grouping::tile:
      return kernels::CastGroups::tile;
    case Grouping::block:
      return kernels::CastGroups::block;
    default:
      return given ? kernels::CastGroups::given : kernels::CastGroups::tensor;
  }
}

bool is_one_scale(Grouping grouping) { return grouping == Grouping::tensor || grouping == Grouping::delayed; }

/// The scales of a side [m, k], as the kernels lay them.
at::Tensor empty_scales(Grouping grouping, std::int64_t m, std::int64_t k, const at::TensorOptions& options) {
  if (grouping == Grouping::row) return at::empty({m}, options);
  if (grouping == Grouping::tile) return at::empty({groups_of(k), m}, options);
  if (grouping == Grouping::block) return at::empty({groups_of(m), groups_of(k)}, options);
  return at::empty({1}, options);
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

/// Whether our own product is the one to take: torch's is slower where tiles on both sides make a large result, and
/// takes no other numbers of blocks than multiples of four (there would have to be gaps between the rows of scales,
/// which it does not let through).
bool prefers_own_product(const Fp8Side& left, const Fp8Side& right, Grouping right_grouping, at::ScalarType type) {
  constexpr std::int64_t kLarge = 40'000'000;  // 13824 x 5120 is, 5120 x 5120 is not (docs/benchmarks.md)
  const bool known_type = type == at::kFloat || type == at::kBFloat16;
  if (!known_type || !kernels::tile_product_available()) return false;
  if (right_grouping == Grouping::tile) return left.codes.size(0) * right.codes.size(0) >= kLarge;
  return right_grouping == Grouping::block && right.scales.size(1) % 4 != 0;
}

/// Scales of 128 x 128 as those of 1 x 128: [tiles, n].
at::Tensor as_tiles(const at::Tensor& block_scales, std::int64_t n) {
  return block_scales.t().repeat_interleave(kGroup, 1).narrow(1, 0, n).contiguous();
}

}  // namespace

bool can_cast_to_fp8(const at::Tensor& matrix, const CastRule& rule) {
  const bool known_grouping = is_one_scale(rule.grouping) || rule.grouping == Grouping::row ||
                              rule.grouping == Grouping::tile || rule.grouping == Grouping::block;
  return matrix.is_cuda() && matrix.dim() == 2 && matrix.numel() > 0 &&
         (matrix.scalar_type() == at::kFloat || matrix.scalar_type() == at::kBFloat16) &&
         (rule.format == Format::e4m3 || rule.format == Format::e5m2) &&
         rule.rounding == formats::Rounding::nearest_even && rule.overflow == formats::Overflow::saturate &&
         rule.hadamard == 0 && known_grouping && kernels::available();
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
  const bool both_coarse =
      left.codes.scalar_type() == at::kFloat8_e5m2 && right.codes.scalar_type() == at::kFloat8_e5m2;
  const bool tiles = left.codes.scalar_type() == at::kFloat8_e4m3fn && right.codes.scalar_type() == at::kFloat8_e4m3fn;
  const bool fits = left.codes.size(0) % kAlignment == 0 && left.codes.size(1) % kAlignment == 0 &&
                    right.codes.size(0) % kAlignment == 0;
  if (!fits || both_coarse || kernels::compute_capability() != kHopper) return false;
  if (is_one_scale(left_grouping)) return is_one_scale(right_grouping);
  if (left_grouping == Grouping::row) return right_grouping == Grouping::row;
  return tiles && left_grouping == Grouping::tile &&
         (right_grouping == Grouping::tile || right_grouping == Grouping::block);
}

at::Tensor multiply(const Fp8Side& left, const Fp8Side& right, Grouping right_grouping, at::ScalarType type,
                    bool fast) {
  if (prefers_own_product(left, right, right_grouping, type))
    return multiply_in_tiles(left, right, right_grouping, type);
  at::Tensor left_scales = left.scales;
  at::Tensor right_scales = right.scales;
  switch (right_grouping) {
    case Grouping::row:
      left_scales = left_scales.view({-1, 1});
      right_scales = right_scales.view({1, -1});
      break;
    case Grouping::tile:
      left_scales = left_scales.t();
      fast = false;
      break;
    case Grouping::block:
      left_scales = left_scales.t();
      right_scales = right_scales.size(1) % 4 == 0 ? right_scales.t() : as_tiles(right_scales, right.codes.size(0));
      fast = false;
      break;
    default:
      break;
  }
  return at::_scaled_mm(left.codes, right.codes.t(), left_scales, right_scales, {}, {}, type, fast);
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
