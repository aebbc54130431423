// SPDX-License-Identifier: Apache-2.0
#include "gnmr/low/thin_product.h"

#include <algorithm>

#include "gnmr/low/thin_loops.h"

namespace gnmr::low {
namespace {

constexpr std::int64_t kTaskElements = 32768;  // what is worth a thread

bool is_float_on_host(const Matrix& matrix) { return matrix.place == Place::host && matrix.type == Type::float32; }

bool has_rows(const Matrix& matrix) {
  return matrix.columns <= 1 || (matrix.column_stride == 1 && matrix.row_stride >= matrix.columns);
}

Rows rows_of(const Matrix& matrix) { return {matrix.floats(), matrix.rows, matrix.columns, matrix.row_stride}; }

std::int64_t grain(std::int64_t width) {
  return std::max<std::int64_t>(1, kTaskElements / std::max<std::int64_t>(1, width));
}

/// Calls `body(first, last)` for parts of `count` pieces, at least `pieces` at a time.
template <class Body>
void share(const FrontEnd& front_end, std::int64_t count, std::int64_t pieces, const Body& body) {
  front_end.threads(pieces)(static_cast<std::size_t>(count), [&](std::size_t first, std::size_t last) {
    body(static_cast<std::int64_t>(first), static_cast<std::int64_t>(last));
  });
}

Matrix rows_times_thin(const FrontEnd& front_end, const Matrix& matrix, const Matrix& thin) {
  const Rows rows = rows_of(matrix);
  const Matrix vectors = front_end.contiguous(thin.transposed());
  const Matrix result = front_end.empty(matrix, Type::float32, rows.count, thin.columns);
  share(front_end, rows.count, grain(rows.width), [&](std::int64_t first, std::int64_t last) {
    dot_rows(rows, first, last, thin.columns, vectors.floats(), result.floats());
  });
  return result;
}

/// The transposed matrix has rows: sums of parts of them, then of the parts, in a fixed order.
Matrix columns_times_thin(const FrontEnd& front_end, const Matrix& transposed, const Matrix& thin) {
  const Rows rows = rows_of(transposed);
  const std::int64_t count = thin.columns;
  const Matrix coefficients = front_end.contiguous(thin);
  const std::int64_t part_rows = grain(rows.width);
  const std::int64_t parts = std::max<std::int64_t>(1, (rows.count + part_rows - 1) / part_rows);
  const Matrix sums = front_end.empty(transposed, Type::float32, parts, count * rows.width);
  share(front_end, parts, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t part = first; part < last; ++part) {
      add_rows(rows, part * part_rows, std::min(rows.count, (part + 1) * part_rows), count, coefficients.floats(),
               sums.floats() + part * count * rows.width);
    }
  });
  return front_end.sum_parts(sums, count).transposed();
}

}  // namespace

void RandomSigns::refill() {
  state_ += 0x9e3779b97f4a7c15u;
  std::uint64_t bits = state_;
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9u;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebu;
  bits_ = bits ^ (bits >> 31);
  left_ = 64;
}

Matrix thin_product(const FrontEnd& front_end, const Matrix& matrix, const Matrix& thin) {
  if (is_float_on_host(matrix) && is_float_on_host(thin) && thin.columns >= 1 && thin.columns <= kMaxThinColumns) {
    if (has_rows(matrix)) return rows_times_thin(front_end, matrix, thin);
    if (has_rows(matrix.transposed())) return columns_times_thin(front_end, matrix.transposed(), thin);
  }
  return front_end.multiply(matrix, thin);
}

}  // namespace gnmr::low
