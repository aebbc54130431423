// SPDX-License-Identifier: Apache-2.0
#include "gnmr/low/row_sample.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace gnmr::low {
namespace {

constexpr std::int64_t kCopiedElements = 32768;  // what is worth a thread

std::vector<std::int64_t> indices_of(const kernels::RowSample& sample) {
  std::vector<std::int64_t> indices;
  for (std::uint64_t index = 0; index < sample.count(); ++index) {
    const std::uint64_t row = sample.row(index);
    if (row < sample.rows) indices.push_back(static_cast<std::int64_t>(row));
  }
  return indices;
}

bool has_all(const std::vector<std::int64_t>& indices, std::int64_t rows) {
  return static_cast<std::int64_t>(indices.size()) == rows;
}

bool holds_floats(const Matrix& matrix) { return matrix.place == Place::host && matrix.type == Type::float32; }

/// A matrix of the host in a type that is read element by element.
Matrix known_type(const FrontEnd& front_end, const Matrix& matrix) {
  const bool is_known = is_operand_type(matrix.type) || matrix.type == Type::float16;
  return is_known ? matrix : front_end.to_type(matrix, Type::float32);
}

/// Elements of a row from column `first` on, as floats.
void copy_elements(const Matrix& matrix, std::int64_t row, std::int64_t first, std::int64_t count, float* to) {
  const std::int64_t begin = row * matrix.row_stride + first * matrix.column_stride;
  if (matrix.type == Type::float32 && matrix.column_stride == 1) {
    std::memcpy(to, matrix.floats() + begin, static_cast<std::size_t>(count) * sizeof(float));
    return;
  }
  const kernels::ElementType type = kernel_type(matrix.type);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(begin + i * matrix.column_stride);
    to[i] = static_cast<float>(kernels::load_element(matrix.data, at, type));
  }
}

/// By a product with a matrix that selects rows, for a device that only the front end can compute on.
Matrix selected_rows(const FrontEnd& front_end, const Matrix& matrix, const std::vector<std::int64_t>& indices) {
  if (has_all(indices, matrix.rows)) return front_end.on_host(matrix);
  const auto count = static_cast<std::int64_t>(indices.size());
  const Matrix selection = front_end.empty(front_end.host_like(), Type::float32, count, matrix.rows);
  std::fill_n(selection.floats(), selection.count(), 0.0f);
  for (std::int64_t row = 0; row < count; ++row) {
    selection.floats()[row * matrix.rows + indices[static_cast<std::size_t>(row)]] = 1;
  }
  const Matrix factors = front_end.beside(front_end.to_type(selection, matrix.type), matrix);
  return front_end.on_host(front_end.multiply(factors, matrix));
}

}  // namespace

Matrix sampled_rows(const FrontEnd& front_end, const Matrix& matrix, const kernels::RowSample& sample) {
  const std::vector<std::int64_t> indices = indices_of(sample);
  if (matrix.place != Place::host) return selected_rows(front_end, matrix, indices);
  if (has_all(indices, matrix.rows) && holds_floats(matrix) && matrix.has_plain_rows()) return matrix;
  const Matrix source = known_type(front_end, matrix);
  const auto count = static_cast<std::int64_t>(indices.size());
  const Matrix rows = front_end.empty(front_end.host_like(), Type::float32, count, source.columns);
  for (std::int64_t row = 0; row < count; ++row) {
    copy_elements(source, indices[static_cast<std::size_t>(row)], 0, source.columns,
                  rows.floats() + row * source.columns);
  }
  return rows;
}

Matrix sampled_columns(const FrontEnd& front_end, const Matrix& matrix, const kernels::RowSample& sample) {
  if (matrix.place != Place::host) return sampled_rows(front_end, matrix.transposed(), sample).transposed();
  const std::vector<std::int64_t> indices = indices_of(sample);
  if (has_all(indices, matrix.columns) && holds_floats(matrix)) return matrix;
  const Matrix source = known_type(front_end, matrix);
  const auto count = static_cast<std::int64_t>(indices.size());
  const Matrix columns = front_end.empty(front_end.host_like(), Type::float32, source.rows, count);
  // Runs of neighbours.
  std::vector<std::int64_t> ends;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    if (i + 1 == indices.size() || indices[i + 1] != indices[i] + 1) ends.push_back(static_cast<std::int64_t>(i) + 1);
  }
  const std::int64_t grain = std::max<std::int64_t>(1, kCopiedElements / std::max<std::int64_t>(1, count));
  front_end.threads(grain)(static_cast<std::size_t>(source.rows), [&](std::size_t first, std::size_t last) {
    for (auto row = static_cast<std::int64_t>(first); row < static_cast<std::int64_t>(last); ++row) {
      std::int64_t begin = 0;
      for (const std::int64_t end : ends) {
        copy_elements(source, row, indices[static_cast<std::size_t>(begin)], end - begin,
                      columns.floats() + row * count + begin);
        begin = end;
      }
    }
  });
  return columns;
}

}  // namespace gnmr::low
