// SPDX-License-Identifier: Apache-2.0
#include "gnmr/low/quantize.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>

#include "gnmr/core/error.h"
#include "gnmr/formats/scaling.h"
#include "gnmr/kernels/casts.h"
#include "gnmr/kernels/casts_reference.h"
#include "gnmr/kernels/rounding.h"
#include "gnmr/recipes/fp8_rule.h"
#include "gnmr/recipes/host_cast.h"

namespace gnmr::low {
namespace {

using formats::Format;
using recipes::CastRule;
using recipes::Grouping;

std::atomic<bool> codes_on_host = false;

/// Quantizes `input` into `output`, both with plain rows; groups lie along the columns.
void quantize_rows(const FrontEnd& front_end, const Matrix& input, const Matrix& output, const NumberCast& cast) {
  recipes::cast_on_host(
      {.rule = cast.rule, .delayed_scale = cast.delayed_scale, .seed = cast.seed, .statistics = cast.statistics},
      host_view(input), host_view(output), front_end.threads(1));
}

/// Calls `body(first_row, rows)` for all rows of a matrix, some at a time, shared among threads.
template <class Body>
void for_some_rows(const FrontEnd& front_end, std::int64_t rows, std::int64_t columns, const Body& body) {
  constexpr std::int64_t kElements = 16384;  // some microseconds of work
  const std::int64_t grain = std::max<std::int64_t>(kElements / std::max<std::int64_t>(columns, 1), 1);
  front_end.threads(grain)(static_cast<std::size_t>(rows), [&](std::size_t first, std::size_t last) {
    body(static_cast<std::int64_t>(first), last - first);
  });
}

kernels::CastTask task_of(const Matrix& matrix, Format format) {
  return {.matrix = matrix.data,
          .type = kernel_type(matrix.type),
          .rows = static_cast<std::uint64_t>(matrix.rows),
          .columns = static_cast<std::uint64_t>(matrix.columns),
          .format = format};
}

void run(const FrontEnd& front_end, const kernels::CastTask& task, const Matrix& matrix) {
  if (matrix.place == Place::host) {
    kernels::reference_cast(task);
    return;
  }
  const Matrix workspace =
      front_end.empty_vector(matrix, Type::byte, static_cast<std::int64_t>(kernels::cast_workspace_bytes(task)));
  kernels::cast_to_fp8(task, workspace.data, front_end.stream(matrix));
}

/// The scales of a side [m, k], as the kernels lay them.
Matrix empty_scales(const FrontEnd& front_end, Grouping grouping, std::int64_t m, std::int64_t k, const Matrix& like) {
  const auto [first, second] = kernels::fp8_scale_shape(recipes::fp8_groups<kernels::CastGroups>(grouping, false),
                                                        static_cast<std::uint64_t>(m), static_cast<std::uint64_t>(k));
  if (grouping == Grouping::tile || grouping == Grouping::block) {
    return front_end.empty(like, Type::float32, static_cast<std::int64_t>(first), static_cast<std::int64_t>(second));
  }
  return front_end.empty_vector(like, Type::float32, static_cast<std::int64_t>(first));
}

/// Whether our kernel rounds to numbers what others leave to torch operators.
bool has_rounding_kernel(const Matrix& matrix, const NumberCast& cast) {
  return matrix.place == Place::device && cast.statistics == nullptr && cast.rule.hadamard == 0 &&
         cast.rule.rounding == formats::Rounding::nearest_even;
}

Matrix round_with_kernel(const FrontEnd& front_end, const Matrix& matrix, const NumberCast& cast) {
  const Matrix source = front_end.contiguous(matrix);
  formats::Scaling scaling = recipes::scaling_of(cast.rule);
  if (cast.rule.grouping == Grouping::delayed && cast.delayed_scale != 0) {
    scaling = formats::given_scale(cast.delayed_scale);
  }
  if (cast.sum_over == SumOver::rows) std::swap(scaling.group_rows, scaling.group_cols);
  const Matrix rounded = front_end.empty(source, Type::float32, source.rows, source.columns);
  const kernels::RoundingTask task{.matrix = source.floats(),
                                   .rounded = rounded.floats(),
                                   .rows = static_cast<std::uint64_t>(source.rows),
                                   .columns = static_cast<std::uint64_t>(source.columns),
                                   .format = cast.rule.format,
                                   .overflow = cast.rule.overflow,
                                   .scaling = scaling};
  const auto bytes = static_cast<std::int64_t>(kernels::rounding_workspace_bytes(task));
  const Matrix workspace = front_end.empty_vector(source, Type::byte, bytes);
  kernels::round_on_device(task, workspace.data, front_end.stream(source));
  return rounded;
}

const CastRule kSavedRule{.format = Format::e4m3, .grouping = Grouping::tile};

}  // namespace

Matrix quantize_to_numbers(const FrontEnd& front_end, const Matrix& matrix, const NumberCast& cast) {
  if (matrix.type != Type::float32) throw Error("[quantize_to_numbers] expected a float32 matrix");
  if (has_rounding_kernel(matrix, cast)) return round_with_kernel(front_end, matrix, cast);
  if (matrix.place != Place::host) return front_end.quantize_by_operators(matrix, cast);
  const bool turned = cast.sum_over == SumOver::rows && !cast.rule.ignores_direction();
  const Matrix facing = turned ? matrix.transposed() : matrix;
  if (cast.rule.hadamard != 0) {
    const std::vector<float> entries = recipes::hadamard_matrix(cast.rule.hadamard, cast.transform_seed);
    const Matrix spread = front_end.multiply_stretches(facing, entries, cast.rule.hadamard);
    quantize_rows(front_end, spread, spread, cast);
    return turned ? spread.transposed() : spread;
  }
  if (turned) {
    const Matrix own = front_end.copy(facing);
    quantize_rows(front_end, own, own, cast);
    return own.transposed();
  }
  const Matrix source = facing.has_plain_rows() ? facing : front_end.contiguous(facing);
  const Matrix result = front_end.empty(source, Type::float32, source.rows, source.columns);
  quantize_rows(front_end, source, result, cast);
  return result;
}

bool makes_codes(const Matrix& matrix) {
  return matrix.place == Place::device || (matrix.place == Place::host && codes_on_host);
}

void set_codes_on_host(bool wanted) { codes_on_host = wanted; }

bool can_quantize_to_codes(const Matrix& matrix, const CastRule& rule) {
  const bool is_known = is_operand_type(matrix.type) || matrix.type == Type::float16 || matrix.type == Type::float64;
  return makes_codes(matrix) && is_known && recipes::has_fp8_codes(rule);
}

Fp8Matrix quantize_to_codes(const FrontEnd& front_end, const Matrix& matrix, const CodeCast& cast) {
  const Matrix source = readable(front_end, matrix);
  kernels::CastTask task = task_of(source, cast.rule.format);
  task.groups = recipes::fp8_groups<kernels::CastGroups>(cast.rule.grouping, cast.given_scale != nullptr);
  task.given_scale = cast.given_scale;
  task.amax = cast.amax;
  Fp8Matrix result{.grouping = cast.rule.grouping};
  const auto want = [&](Fp8Side& side, kernels::CastOutput& output, std::int64_t m, std::int64_t k,
                        formats::Statistics* statistics) {
    side.codes = front_end.empty(source, cast.rule.format == Format::e4m3 ? Type::e4m3 : Type::e5m2, m, k);
    output.codes = side.codes.bytes();
    output.statistics = statistics;
    // A given scale is copied too: GEMMs want it at an alignment of its own.
    side.scales = empty_scales(front_end, cast.rule.grouping, m, k, source);
    output.scales = side.scales.floats();
  };
  if (cast.by_rows) want(result.by_rows, task.by_rows, source.rows, source.columns, cast.statistics_by_rows);
  if (cast.by_columns) {
    want(result.by_columns, task.by_columns, source.columns, source.rows, cast.statistics_by_columns);
  }
  // A matrix without elements has no FP8 data, and nobody reads its scales.
  if (source.count() > 0) run(front_end, task, source);
  return result;
}

float finite_amax(const FrontEnd& front_end, const Matrix& matrix) {
  if (matrix.place != Place::host) return front_end.amax_by_operators(matrix);
  const Matrix floats = front_end.to_type(matrix, Type::float32);
  const Matrix source = floats.has_plain_rows() ? floats : front_end.contiguous(floats);
  return recipes::amax_on_host(host_view(source), front_end.threads(1));
}

void find_amax(const FrontEnd& front_end, const Matrix& matrix, float* amax) {
  const Matrix source = readable(front_end, matrix);
  kernels::CastTask task = task_of(source, Format::e4m3);
  task.amax = amax;
  run(front_end, task, source);
}

SavedMatrix save_in_8_bits(const FrontEnd& front_end, const Matrix& matrix) {
  if (matrix.place == Place::device && matrix.count() > 0 && can_quantize_to_codes(matrix, kSavedRule)) {
    const Fp8Side side = quantize_to_codes(front_end, matrix, {.rule = kSavedRule, .by_rows = true}).by_rows;
    return {side.codes, side.scales};
  }
  const Matrix source = front_end.on_host(matrix);
  const std::int64_t columns = source.columns;
  const std::int64_t groups = (columns + 127) / 128;
  const Matrix codes = front_end.empty(source, Type::byte, source.rows, columns);
  const Matrix scales = front_end.empty(source, Type::float32, source.rows, groups);
  for_some_rows(front_end, source.rows, columns, [&](std::int64_t first, std::size_t count) {
    formats::Quantised part{.codes = codes.bytes() + first * columns,
                            .code_stride = static_cast<std::size_t>(columns),
                            .scales = scales.floats() + first * groups};
    formats::quantise({.format = Format::e4m3}, formats::kTileScaling,
                      {source.floats() + first * columns, count, static_cast<std::size_t>(columns),
                       static_cast<std::size_t>(columns)},
                      part);
  });
  return {front_end.beside(codes, matrix), front_end.beside(scales, matrix)};
}

Matrix restore_from_8_bits(const FrontEnd& front_end, const SavedMatrix& saved) {
  if (saved.codes.type == Type::e4m3) return front_end.values_of({saved.codes, saved.scales}, Grouping::tile);
  const Matrix codes = front_end.bytes_on_host(saved.codes);
  const Matrix scales = front_end.on_host(saved.scales);
  const std::int64_t columns = codes.columns;
  const Matrix matrix = front_end.empty(scales, Type::float32, codes.rows, columns);
  for_some_rows(front_end, codes.rows, columns, [&](std::int64_t first, std::size_t count) {
    const formats::Quantised part{.codes = codes.bytes() + first * columns,
                                  .code_stride = static_cast<std::size_t>(columns),
                                  .scales = scales.floats() + first * scales.columns};
    formats::dequantise(Format::e4m3, formats::kTileScaling, part,
                        {matrix.floats() + first * columns, count, static_cast<std::size_t>(columns),
                         static_cast<std::size_t>(columns)});
  });
  return front_end.beside(matrix, saved.codes);
}

}  // namespace gnmr::low
