// SPDX-License-Identifier: Apache-2.0
#include "gnmr/torch/operand_cast.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "gnmr/core/error.h"
#include "gnmr/formats/delayed_scaling.h"
#include "gnmr/formats/scaling.h"
#include "gnmr/torch/fp8_matrix.h"

namespace gnmr::nn {
namespace {

using formats::ScaleKind;
using formats::Scaling;
using recipes::CastRule;
using recipes::Grouping;

constexpr std::int64_t kSliceElements = 16384;  // what one thread takes at a time: some microseconds of work

Scaling scaling_of(const CastRule& rule) {
  switch (rule.grouping) {
    case Grouping::none:
      return formats::kNoScaling;
    case Grouping::tensor:
    case Grouping::delayed:
      return formats::kTensorScaling;
    case Grouping::row:
      return formats::kRowScaling;
    case Grouping::tile:
      return formats::kTileScaling;
    case Grouping::block:
      return formats::kBlockScaling;
    case Grouping::mx:
      return rule.mx_round_up ? formats::kMxRoundUpScaling : formats::kMxFloorScaling;
    case Grouping::nvfp4:
      return formats::kNvfp4Scaling;
  }
  return formats::kTensorScaling;
}

/// Rows that one thread takes at a time; a multiple of the rows of a group.
std::int64_t slice_rows(std::int64_t cols, const Scaling& scaling) {
  const auto group_rows = static_cast<std::int64_t>(std::max<std::size_t>(scaling.group_rows, 1));
  const std::int64_t rows = std::max<std::int64_t>(kSliceElements / std::max<std::int64_t>(cols, 1), 1);
  return (rows + group_rows - 1) / group_rows * group_rows;
}

/// Calls `body(slice, first_row, last_row)` for all slices, shared among threads. Slices do not depend on their number.
void for_slices(std::int64_t rows, std::int64_t rows_a_slice,
                const std::function<void(std::int64_t, std::int64_t, std::int64_t)>& body) {
  const std::int64_t slices = (rows + rows_a_slice - 1) / rows_a_slice;
  at::parallel_for(0, slices, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t slice = first; slice < last; ++slice) {
      body(slice, slice * rows_a_slice, std::min((slice + 1) * rows_a_slice, rows));
    }
  });
}

/// One float32 scale of the whole tensor, where the scaling has one, is found first: slices then know it.
Scaling with_tensor_scale(Scaling scaling, const OperandCast& cast, const at::Tensor& matrix) {
  if (cast.rule.grouping == Grouping::delayed) return formats::given_scale(cast.delayed_scale);
  if (cast.rule.grouping == Grouping::tensor) {
    return formats::given_scale(formats::float32_scale(cast.rule.format, finite_amax(matrix)));
  }
  if (scaling.kind == ScaleKind::nvfp4) scaling.scale = formats::nvfp4_tensor_scale(finite_amax(matrix));
  return scaling;
}

/// A NaN makes all of its group NaN where the format has none: also where slices of one group were cast apart.
void spread_nan(const at::Tensor& output, formats::Format format, std::int64_t rows_a_slice) {
  if (formats::layout_of(format).has_nan() || output.size(1) == 0 || output.size(0) <= rows_a_slice) return;
  const float* const data = output.const_data_ptr<float>();
  for (std::int64_t first = 0; first < output.size(0); first += rows_a_slice) {
    if (!std::isnan(data[first * output.stride(0)])) continue;
    output.fill_(std::numeric_limits<float>::quiet_NaN());
    return;
  }
}

/// Casts `input` into `output`, both with rows of unit stride; groups lie along the columns.
void cast_rows(const at::Tensor& input, const at::Tensor& output, const OperandCast& cast) {
  const Scaling scaling = with_tensor_scale(scaling_of(cast.rule), cast, input);
  const std::int64_t rows = input.size(0);
  const std::int64_t cols = input.size(1);
  const std::int64_t rows_a_slice = slice_rows(cols, scaling);
  std::vector<formats::Statistics> parts;
  if (cast.statistics != nullptr) parts.resize(static_cast<std::size_t>((rows + rows_a_slice - 1) / rows_a_slice));
  const float* const from = input.const_data_ptr<float>();
  float* const to = output.mutable_data_ptr<float>();
  for_slices(rows, rows_a_slice, [&](std::int64_t slice, std::int64_t first, std::int64_t last) {
    const formats::Cast rounding{.format = cast.rule.format,
                                 .rounding = cast.rule.rounding,
                                 .overflow = cast.rule.overflow,
                                 .seed = cast.seed,
                                 .first_index = static_cast<std::uint64_t>(first * cols)};
    const auto count = static_cast<std::size_t>(last - first);
    const auto width = static_cast<std::size_t>(cols);
    const formats::ConstMatrix source{from + first * input.stride(0), count, width,
                                      static_cast<std::size_t>(input.stride(0))};
    const formats::Matrix target{to + first * output.stride(0), count, width,
                                 static_cast<std::size_t>(output.stride(0))};
    formats::Statistics* const seen = parts.empty() ? nullptr : &parts[static_cast<std::size_t>(slice)];
    formats::fake_quantise(rounding, scaling, source, target, seen);
  });
  for (const formats::Statistics& part : parts) *cast.statistics += part;
  if (scaling.group_rows == 0) spread_nan(output, cast.rule.format, rows_a_slice);
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
  std::vector<float> entries(static_cast<std::size_t>(size * size));
  const formats::RandomKey key = formats::random_key(seed, 0);
  const float length = 1.0f / std::sqrt(static_cast<float>(size));
  for (std::int64_t row = 0; row < size; ++row) {
    const bool flip = (formats::random_bits(key, static_cast<std::uint32_t>(row)) >> 31) != 0;
    for (std::int64_t col = 0; col < size; ++col) {
      const bool odd = __builtin_parityll(static_cast<unsigned long long>(row & col)) != 0;
      entries[static_cast<std::size_t>(row * size + col)] = odd != flip ? -length : length;
    }
  }
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
  const std::int64_t rows = source.size(0);
  const std::int64_t cols = source.size(1);
  if (rows == 0 || cols == 0) return 0;
  const std::int64_t rows_a_slice = std::max<std::int64_t>(2 * kSliceElements / cols, 1);
  std::vector<float> parts(static_cast<std::size_t>((rows + rows_a_slice - 1) / rows_a_slice));
  const float* const data = source.const_data_ptr<float>();
  for_slices(rows, rows_a_slice, [&](std::int64_t slice, std::int64_t first, std::int64_t last) {
    parts[static_cast<std::size_t>(slice)] = formats::finite_amax(
        formats::ConstMatrix{data + first * source.stride(0), static_cast<std::size_t>(last - first),
                             static_cast<std::size_t>(cols), static_cast<std::size_t>(source.stride(0))});
  });
  return *std::max_element(parts.begin(), parts.end());
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
  for_slices(rows, slice_rows(cols, formats::kTileScaling), [&](std::int64_t, std::int64_t first, std::int64_t last) {
    formats::Quantised part{.codes = codes.mutable_data_ptr<std::uint8_t>() + first * cols,
                            .code_stride = static_cast<std::size_t>(cols),
                            .scales = scales.mutable_data_ptr<float>() + first * groups};
    formats::quantise({.format = formats::Format::e4m3}, formats::kTileScaling,
                      {source.const_data_ptr<float>() + first * cols, static_cast<std::size_t>(last - first),
                       static_cast<std::size_t>(cols), static_cast<std::size_t>(cols)},
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
  for_slices(rows, slice_rows(cols, formats::kTileScaling), [&](std::int64_t, std::int64_t first, std::int64_t last) {
    const formats::Quantised part{.codes = codes.mutable_data_ptr<std::uint8_t>() + first * cols,
                                  .code_stride = static_cast<std::size_t>(cols),
                                  .scales = scales.mutable_data_ptr<float>() + first * scales.size(1)};
    formats::dequantise(formats::Format::e4m3, formats::kTileScaling, part,
                        {matrix.mutable_data_ptr<float>() + first * cols, static_cast<std::size_t>(last - first),
                         static_cast<std::size_t>(cols), static_cast<std::size_t>(cols)});
  });
  return matrix.to(saved.codes.device());
}

}  // namespace gnmr::nn
