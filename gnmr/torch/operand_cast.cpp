// SPDX-License-Identifier: Apache-2.0
#include "gnmr/torch/operand_cast.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <vector>

#include "gnmr/core/error.h"
#include "gnmr/formats/scaling.h"
#include "gnmr/recipes/host_cast.h"
#include "gnmr/torch/fp8_matrix.h"
#include "gnmr/torch/torch_threads.h"

namespace gnmr::nn {
namespace {

using recipes::CastRule;
using recipes::Grouping;

formats::ConstMatrix view_of(const at::Tensor& matrix) {
  return {matrix.const_data_ptr<float>(), static_cast<std::size_t>(matrix.size(0)),
          static_cast<std::size_t>(matrix.size(1)), static_cast<std::size_t>(matrix.stride(0))};
}

/// Casts `input` into `output`, both with rows of unit stride; groups lie along the columns.
void cast_rows(const at::Tensor& input, const at::Tensor& output, const OperandCast& cast) {
  const formats::ConstMatrix target = view_of(output);
  recipes::cast_on_host(
      {.rule = cast.rule, .delayed_scale = cast.delayed_scale, .seed = cast.seed, .statistics = cast.statistics},
      view_of(input), {output.mutable_data_ptr<float>(), target.rows, target.cols, target.row_stride},
      on_torch_threads(1));
}

/// Calls `body(first_row, rows)` for all rows of a matrix, some at a time, shared among threads.
template <class Body>
void for_some_rows(std::int64_t rows, std::int64_t cols, const Body& body) {
  constexpr std::int64_t kElements = 16384;  // some microseconds of work
  at::parallel_for(0, rows, std::max<std::int64_t>(kElements / std::max<std::int64_t>(cols, 1), 1),
                   [&](std::int64_t first, std::int64_t last) { body(first, static_cast<std::size_t>(last - first)); });
}

/// Whether rows have unit stride, as the array functions need it.
bool has_plain_rows(const at::Tensor& matrix) {
  return matrix.stride(1) == 1 && (matrix.size(0) <= 1 || matrix.stride(0) >= matrix.size(1));
}

void check(const at::Tensor& matrix) {
  if (matrix.dim() != 2 || matrix.scalar_type() != at::kFloat) {
    throw Error("[cast_operand] expected a float32 matrix, got " + std::to_string(matrix.dim()) + " dimensions of " +
                c10::toString(matrix.scalar_type()));
  }
}

}  // namespace

at::Tensor hadamard_transform(const at::Tensor& matrix, std::int64_t size, std::uint64_t seed) {
  const std::int64_t whole = matrix.size(1) / size * size;
  if (whole == 0) return matrix.clone(at::MemoryFormat::Contiguous);
  const std::vector<float> entries = recipes::hadamard_matrix(static_cast<std::uint32_t>(size), seed);
  const at::Tensor transform = at::tensor(entries).view({size, size}).to(matrix.device());
  at::Tensor result = matrix.clone(at::MemoryFormat::Contiguous);
  const at::Tensor part = result.narrow(1, 0, whole).reshape({matrix.size(0), whole / size, size});
  result.narrow(1, 0, whole).copy_(at::matmul(part, transform).view({matrix.size(0), whole}));
  return result;
}

at::Tensor cast_operand(const at::Tensor& matrix, const OperandCast& cast) {
  check(matrix);
  if (!matrix.device().is_cpu()) return cast_operand_with_operators(matrix, cast);
  const bool turned = cast.sum_over == SumOver::rows && !cast.rule.ignores_direction();
  const at::Tensor facing = turned ? matrix.t() : matrix;
  if (cast.rule.hadamard != 0) {
    const at::Tensor spread = hadamard_transform(facing, cast.rule.hadamard, cast.transform_seed);
    cast_rows(spread, spread, cast);
    return turned ? spread.t() : spread;
  }
  if (turned) {
    const at::Tensor copy = facing.contiguous();
    const at::Tensor own = copy.is_same(facing) || copy.data_ptr() == facing.data_ptr() ? copy.clone() : copy;
    cast_rows(own, own, cast);
    return own.t();
  }
  const at::Tensor source = has_plain_rows(facing) ? facing : facing.contiguous();
  const at::Tensor result = at::empty({source.size(0), source.size(1)}, source.options());
  cast_rows(source, result, cast);
  return result;
}

float finite_amax(const at::Tensor& matrix) {
  if (!matrix.device().is_cpu()) {
    const at::Tensor magnitude = matrix.abs();
    return magnitude.masked_fill(magnitude.isfinite().logical_not(), 0).max().item<float>();
  }
  const at::Tensor source = has_plain_rows(matrix) ? matrix : matrix.contiguous();
  return recipes::amax_on_host(view_of(source), on_torch_threads(1));
}

SavedMatrix save_in_8_bits(const at::Tensor& matrix) {
  const CastRule rule{.format = formats::Format::e4m3, .grouping = Grouping::tile};
  if (can_cast_to_fp8(matrix, rule)) {
    const Fp8Side side = cast_to_fp8(matrix, {.rule = rule, .by_rows = true}).by_rows;
    return {side.codes, side.scales};
  }
  const at::Tensor source = matrix.to(at::kCPU, at::kFloat).contiguous();
  const std::int64_t rows = source.size(0);
  const std::int64_t cols = source.size(1);
  const std::int64_t groups = (cols + 127) / 128;
  const at::Tensor codes = at::empty({rows, cols}, source.options().dtype(at::kByte));
  const at::Tensor scales = at::empty({rows, groups}, source.options());
  for_some_rows(rows, cols, [&](std::int64_t first, std::size_t count) {
    formats::Quantised part{.codes = codes.mutable_data_ptr<std::uint8_t>() + first * cols,
                            .code_stride = static_cast<std::size_t>(cols),
                            .scales = scales.mutable_data_ptr<float>() + first * groups};
    formats::quantise({.format = formats::Format::e4m3}, formats::kTileScaling,
                      {source.const_data_ptr<float>() + first * cols, count, static_cast<std::size_t>(cols),
                       static_cast<std::size_t>(cols)},
                      part);
  });
  return {codes.to(matrix.device()), scales.to(matrix.device())};
}

at::Tensor restore_from_8_bits(const SavedMatrix& saved) {
  if (saved.codes.scalar_type() == at::kFloat8_e4m3fn) return values_of({saved.codes, saved.scales}, Grouping::tile);
  const at::Tensor codes = saved.codes.to(at::kCPU);
  const at::Tensor scales = saved.scales.to(at::kCPU);
  const std::int64_t rows = codes.size(0);
  const std::int64_t cols = codes.size(1);
  const at::Tensor matrix = at::empty({rows, cols}, scales.options());
  for_some_rows(rows, cols, [&](std::int64_t first, std::size_t count) {
    const formats::Quantised part{.codes = codes.mutable_data_ptr<std::uint8_t>() + first * cols,
                                  .code_stride = static_cast<std::size_t>(cols),
                                  .scales = scales.mutable_data_ptr<float>() + first * scales.size(1)};
    formats::dequantise(formats::Format::e4m3, formats::kTileScaling, part,
                        {matrix.mutable_data_ptr<float>() + first * cols, count, static_cast<std::size_t>(cols),
                         static_cast<std::size_t>(cols)});
  });
  return matrix.to(saved.codes.device());
}

}  // namespace gnmr::nn
