// SPDX-License-Identifier: Apache-2.0
#include "gnmr/recipes/host_cast.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace gnmr::recipes {
namespace {

using formats::ConstMatrix;
using formats::Matrix;
using formats::ScaleKind;
using formats::Scaling;

constexpr std::size_t kSliceElements = 16384;  // what one thread takes at a time: some microseconds of work

/// Rows that one thread takes at a time; a multiple of the rows of a group.
std::size_t slice_rows(std::size_t cols, const Scaling& scaling) {
  const std::size_t group_rows = std::max<std::size_t>(scaling.group_rows, 1);
  const std::size_t rows = std::max<std::size_t>(kSliceElements / std::max<std::size_t>(cols, 1), 1);
  return (rows + group_rows - 1) / group_rows * group_rows;
}

ConstMatrix rows_of(ConstMatrix matrix, std::size_t first, std::size_t count) {
  return {matrix.data + first * matrix.row_stride, count, matrix.cols, matrix.row_stride};
}

/// Calls `body(slice, first_row, rows)` for all slices; these do not depend on the number of threads.
template <class Body>
void for_slices(std::size_t rows, std::size_t rows_a_slice, const ParallelFor& parallel_for, const Body& body) {
  const std::size_t slices = (rows + rows_a_slice - 1) / rows_a_slice;
  parallel_for(slices, [&](std::size_t first, std::size_t last) {
    for (std::size_t slice = first; slice < last; ++slice) {
      const std::size_t row = slice * rows_a_slice;
      body(slice, row, std::min(rows_a_slice, rows - row));
    }
  });
}

/// One float32 scale of the whole matrix, where the scaling has one, is found first: slices then know it.
Scaling with_matrix_scale(Scaling scaling, const HostCast& cast, ConstMatrix matrix, const ParallelFor& parallel_for) {
  if (cast.rule.grouping == Grouping::delayed && cast.delayed_scale != 0) {
    return formats::given_scale(cast.delayed_scale);
  }
  if (cast.rule.grouping == Grouping::tensor || cast.rule.grouping == Grouping::delayed) {
    return formats::given_scale(formats::float32_scale(cast.rule.format, amax_on_host(matrix, parallel_for)));
  }
  if (scaling.kind == ScaleKind::nvfp4) {
    scaling.scale = formats::nvfp4_tensor_scale(amax_on_host(matrix, parallel_for));
  }
  return scaling;
}

/// A NaN makes all of its group NaN where the format has none: also where slices of one group were quantized apart.
void spread_nan(Matrix output, formats::Format format, std::size_t rows_a_slice) {
  if (formats::layout_of(format).has_nan() || output.cols == 0 || output.rows <= rows_a_slice) return;
  for (std::size_t first = 0; first < output.rows; first += rows_a_slice) {
    if (!std::isnan(output.data[first * output.row_stride])) continue;
    for (std::size_t row = 0; row < output.rows; ++row) {
      std::fill_n(output.data + row * output.row_stride, output.cols, std::numeric_limits<float>::quiet_NaN());
    }
    return;
  }
}

std::uint64_t mixed(std::uint64_t state, std::uint64_t value) {
  state = (state ^ value) * 0x9e3779b97f4a7c15u;
  return state ^ (state >> 29);
}

}  // namespace

Scaling scaling_of(const CastRule& rule) {
  switch (rule.grouping) {
    case Grouping::none:
      return formats::kNoScaling;
    case Grouping::tensor:
    case Grouping::delayed:
      break;
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

std::uint64_t cast_seed(const CastMoment& moment, Product product, std::size_t purpose) {
  std::uint64_t seed = mixed(0x243f6a8885a308d3u, moment.seed);
  seed = mixed(seed, static_cast<std::uint64_t>(moment.step));
  seed = mixed(seed, static_cast<std::uint64_t>(moment.micro_batch));
  seed = mixed(seed, moment.layer);
  return mixed(seed, static_cast<std::size_t>(product) * 4 + purpose);
}

void cast_on_host(const HostCast& cast, ConstMatrix input, Matrix output, const ParallelFor& parallel_for) {
  const Scaling scaling = with_matrix_scale(scaling_of(cast.rule), cast, input, parallel_for);
  const std::size_t rows_a_slice = slice_rows(input.cols, scaling);
  std::vector<formats::Statistics> parts;
  if (cast.statistics != nullptr) parts.resize((input.rows + rows_a_slice - 1) / rows_a_slice);
  for_slices(input.rows, rows_a_slice, parallel_for, [&](std::size_t slice, std::size_t first, std::size_t rows) {
    const formats::Cast rounding{.format = cast.rule.format,
                                 .rounding = cast.rule.rounding,
                                 .overflow = cast.rule.overflow,
                                 .seed = cast.seed,
                                 .first_index = first * input.cols};
    const Matrix target{output.data + first * output.row_stride, rows, output.cols, output.row_stride};
    formats::fake_quantise(rounding, scaling, rows_of(input, first, rows), target,
                           parts.empty() ? nullptr : &parts[slice]);
  });
  for (const formats::Statistics& part : parts) *cast.statistics += part;
  if (scaling.group_rows == 0) spread_nan(output, cast.rule.format, rows_a_slice);
}

float amax_on_host(ConstMatrix matrix, const ParallelFor& parallel_for) {
  if (matrix.rows == 0 || matrix.cols == 0) return 0;
  const std::size_t rows_a_slice = std::max<std::size_t>(2 * kSliceElements / matrix.cols, 1);
  std::vector<float> parts((matrix.rows + rows_a_slice - 1) / rows_a_slice);
  for_slices(matrix.rows, rows_a_slice, parallel_for, [&](std::size_t slice, std::size_t first, std::size_t rows) {
    parts[slice] = formats::finite_amax(rows_of(matrix, first, rows));
  });
  return *std::max_element(parts.begin(), parts.end());
}

std::vector<float> hadamard_matrix(std::uint32_t size, std::uint64_t seed) {
  std::vector<float> entries(std::size_t{size} * size);
  const formats::RandomKey key = formats::random_key(seed, 0);
  const float length = 1.0f / std::sqrt(static_cast<float>(size));
  for (std::uint32_t row = 0; row < size; ++row) {
    const bool flip = (formats::random_bits(key, row) >> 31) != 0;
    for (std::uint32_t col = 0; col < size; ++col) {
      const bool odd = __builtin_parity(row & col) != 0;
      entries[std::size_t{row} * size + col] = odd != flip ? -length : length;
    }
  }
  return entries;
}

double expected_error(const Recipe& recipe, Product product) {
  constexpr double kRoundingShare = 0.189;  // root mean square of half a step's rounding, over mantissas in [1, 2)
  double square = 0;
  for (std::size_t place = 0; place < 2; ++place) {
    const std::optional<CastRule>& rule = recipe.rule(product, place);
    if (!rule) continue;
    const formats::Layout layout = formats::layout_of(rule->format);
    if (layout.is_integer || layout.mantissa_bits < 2) return 0;
    const double one = kRoundingShare * std::exp2(-layout.mantissa_bits);
    square += one * one * (rule->rounding == formats::Rounding::stochastic ? 2 : 1);
  }
  return std::sqrt(square);
}

}  // namespace gnmr::recipes
