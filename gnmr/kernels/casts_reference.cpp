// SPDX-License-Identifier: Apache-2.0
#include "gnmr/kernels/casts_reference.h"

#include <string>
#include <vector>

#include "gnmr/core/error.h"
#include "gnmr/formats/scaling.h"

namespace gnmr::kernels {
namespace {

constexpr std::uint64_t kGroup = 128;

std::uint64_t parts(std::uint64_t whole) { return (whole + kGroup - 1) / kGroup; }

std::vector<float> values_of(const CastTask& task, bool turned) {
  std::vector<float> values(task.rows * task.columns);
  for (std::size_t row = 0; row < task.rows; ++row) {
    for (std::size_t column = 0; column < task.columns; ++column) {
      const double value = load_element(task.matrix, row * task.columns + column, task.type);
      values[turned ? column * task.rows + row : row * task.columns + column] = static_cast<float>(value);
    }
  }
  return values;
}

formats::Scaling scaling_of(const CastTask& task) {
  switch (task.groups) {
    case CastGroups::tensor:
      return formats::kTensorScaling;
    case CastGroups::given:
      return formats::given_scale(*task.given_scale);
    case CastGroups::row:
      return formats::kRowScaling;
    case CastGroups::tile:
      return formats::kTileScaling;
    case CastGroups::block:
      break;
  }
  return formats::kBlockScaling;
}

/// One direction: `rows` of `columns` values.
void cast_direction(const CastTask& task, const CastOutput& output, const std::vector<float>& values,
                    std::uint64_t rows, std::uint64_t columns) {
  const formats::Scaling scaling = scaling_of(task);
  std::vector<float> scales(formats::scale_count(scaling, rows, columns));
  formats::Quantised quantised{.codes = output.codes, .code_stride = columns, .scales = scales.data()};
  formats::Statistics seen;
  formats::quantise({.format = task.format}, scaling, {values.data(), rows, columns, columns}, quantised, &seen);
  if (output.statistics != nullptr) *output.statistics = seen;
  if (output.scales == nullptr) return;
  // A scale of gnmr/formats is at group row times groups per row plus group.
  const std::uint64_t across = task.groups == CastGroups::tile || task.groups == CastGroups::block ? parts(columns) : 1;
  const std::uint64_t stride = output.scale_stride == 0 ? across : output.scale_stride;
  for (std::uint64_t i = 0; i < scales.size(); ++i) {
    const std::uint64_t group_row = i / across;
    const std::uint64_t group = i % across;
    output.scales[task.groups == CastGroups::tile ? group * rows + group_row : group_row * stride + group] = scales[i];
  }
}

[[noreturn]] void refuse(const std::string& what) { throw Error("[cast_to_fp8] expected " + what); }

void check_output(const CastTask& task, const CastOutput& output, std::uint64_t columns) {
  if (task.groups == CastGroups::block && output.scale_stride != 0 && output.scale_stride < parts(columns)) {
    refuse("a stride of at least " + std::to_string(parts(columns)) + " scales, got " +
           std::to_string(output.scale_stride));
  }
}

}  // namespace

void check_cast(const CastTask& task) {
  if (task.type != ElementType::float32 && task.type != ElementType::bfloat16) refuse("float32 or bfloat16 elements");
  if (task.format != formats::Format::e4m3 && task.format != formats::Format::e5m2) refuse("the format e4m3 or e5m2");
  const bool is_wanted = task.by_rows.codes != nullptr || task.by_columns.codes != nullptr;
  if (task.groups == CastGroups::given && is_wanted && task.given_scale == nullptr) refuse("a given scale");
  constexpr std::uint64_t kMost = std::uint64_t{1} << 24;
  if (task.rows >= kMost || task.columns >= kMost || parts(task.rows) * parts(task.columns) >= 128 * kMost) {
    refuse("less than 2^24 rows and columns and 2^31 blocks, got " + std::to_string(task.rows) + " x " +
           std::to_string(task.columns));
  }
  if (task.rows * task.columns == 0) return;
  if (task.matrix == nullptr) refuse("a matrix");
  if (reinterpret_cast<std::uintptr_t>(task.matrix) % bytes_of(task.type) != 0) refuse("elements at their alignment");
  check_output(task, task.by_rows, task.columns);
  check_output(task, task.by_columns, task.rows);
}

std::uint64_t scale_count(const CastTask& task, const CastOutput& output, bool is_by_columns) {
  const std::uint64_t rows = is_by_columns ? task.columns : task.rows;
  const std::uint64_t columns = is_by_columns ? task.rows : task.columns;
  if (rows * columns == 0) return 0;
  switch (task.groups) {
    case CastGroups::tensor:
    case CastGroups::given:
      return 1;
    case CastGroups::row:
      return rows;
    case CastGroups::tile:
      return rows * parts(columns);
    case CastGroups::block:
      break;
  }
  return parts(rows) * (output.scale_stride == 0 ? parts(columns) : output.scale_stride);
}

void reference_cast(const CastTask& task) {
  check_cast(task);
  const std::vector<float> values = values_of(task, false);
  if (task.amax != nullptr) *task.amax = formats::finite_amax(values);
  if (task.by_rows.codes != nullptr) cast_direction(task, task.by_rows, values, task.rows, task.columns);
  if (task.by_columns.codes != nullptr) {
    cast_direction(task, task.by_columns, values_of(task, true), task.columns, task.rows);
  }
}

}  // namespace gnmr::kernels
