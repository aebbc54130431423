// SPDX-License-Identifier: Apache-2.0
#include "gnmr/low/error_sums.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "gnmr/core/error.h"
#include "gnmr/kernels/add_square.h"
#include "gnmr/kernels/host_squares.h"
#include "gnmr/low/row_sample.h"

namespace gnmr::low {
namespace {

std::uint64_t count_of(const Matrix& matrix) { return static_cast<std::uint64_t>(matrix.count()); }

/// Results as loops of the host read them.
Matrix float_rows(const FrontEnd& front_end, const Matrix& matrix) {
  if (matrix.place == Place::other) return sampled_rows(front_end, matrix, {.rows = count_of_rows(matrix)});
  return front_end.contiguous(front_end.to_type(matrix, Type::float32));
}

}  // namespace

double ErrorSums::error() const {
  if (!measured) return std::numeric_limits<double>::quiet_NaN();
  if (difference == 0) return 0;
  if (!(reference > 0)) return std::numeric_limits<double>::infinity();
  return std::sqrt(difference / reference);
}

double squared_norm(const FrontEnd& front_end, const Matrix& matrix) {
  const bool is_known = is_operand_type(matrix.type) || matrix.type == Type::float16;
  // A sum does not mind the order of dimensions, but gaps.
  if (matrix.place != Place::host || !is_known || !matrix.is_dense()) return front_end.square_by_operators(matrix);
  const kernels::Slice slice{matrix.data, count_of(matrix), kernel_type(matrix.type), 0};
  double sum = 0;
  kernels::sum_squares_on_host(std::span(&slice, 1), std::span(&sum, 1), front_end.threads(4));
  return sum;
}

std::vector<double> squared_norms_of_rows(const FrontEnd& front_end, const Matrix& matrix) {
  std::vector<kernels::Slice> slices;
  for (std::int64_t row = 0; row < matrix.rows; ++row) {
    slices.push_back({matrix.floats() + row * matrix.row_stride, static_cast<std::uint64_t>(matrix.columns),
                      kernels::ElementType::float32, static_cast<std::uint32_t>(row)});
  }
  std::vector<double> norms(slices.size());
  kernels::sum_squares_on_host(slices, norms, front_end.threads(64));
  return norms;
}

void add_square(const FrontEnd& front_end, const Matrix& matrix, double* sum) {
  const Matrix source = readable(front_end, matrix);
  if (source.count() == 0) return;
  const Matrix space = workspace(front_end, kernels::add_square_workspace_bytes(count_of(source)), source);
  kernels::add_square(rows_view(source), sum, space.data, front_end.stream(source));
}

void add_error(const FrontEnd& front_end, const Matrix& low, const Matrix& high, const ErrorPlace& place) {
  if (high.count() == 0) return;
  if (place.on_device.totals != nullptr) {
    const Matrix low_source = readable(front_end, low);
    const Matrix high_source = readable(front_end, high);
    const std::size_t bytes = kernels::add_error_workspace_bytes(static_cast<std::uint64_t>(high.rows));
    const Matrix space = workspace(front_end, bytes, high_source);
    kernels::add_error(rows_view(low_source), rows_view(high_source), place.on_device, space.data,
                       front_end.stream(high));
    return;
  }
  const Matrix high_rows = float_rows(front_end, high);
  const Matrix apart = front_end.subtract(float_rows(front_end, low), high_rows);
  const std::vector<double> differences = squared_norms_of_rows(front_end, apart);
  const std::vector<double> references = squared_norms_of_rows(front_end, high_rows);
  std::vector<kernels::ComparedRow> rows;
  for (std::size_t row = 0; row < references.size(); ++row) rows.push_back({differences[row], references[row]});
  place.sums->add(std::span<const kernels::ComparedRow>(rows));
}

kernels::RowsView rows_view(const Matrix& matrix) {
  if (!is_operand_type(matrix.type)) throw Error("expected float32 or bfloat16 on a CUDA device");
  return {.data = matrix.data,
          .type = kernel_type(matrix.type),
          .rows = count_of_rows(matrix),
          .columns = static_cast<std::uint64_t>(matrix.columns)};
}

Matrix workspace(const FrontEnd& front_end, std::size_t bytes, const Matrix& like) {
  return front_end.empty_vector(like, Type::byte, static_cast<std::int64_t>(bytes));
}

}  // namespace gnmr::low
