// SPDX-License-Identifier: Apache-2.0
// A matrix in memory that a front end owns: an address with a shape, and what keeps it alive.
//
// Goals: operands, results and FP8 data in one type, on the host or on a device, without a tensor library. Non-goals:
// allocating and arithmetic (front_end.h).
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "gnmr/formats/scaling.h"
#include "gnmr/kernels/element.h"

namespace gnmr::low {

/// How an element is stored.
enum class Type : std::uint8_t { float32, bfloat16, float16, e4m3, e5m2, byte, float64, other };

/// Where a matrix lies.
enum class Place : std::uint8_t {
  host,
  device,  // a CUDA device that our kernels run on
  other,   // a device that only the front end can compute on
};

/// A matrix. Copies share its memory. Without an owner it is undefined: there is none.
struct Matrix {
  void* data = nullptr;
  Type type = Type::float32;
  Place place = Place::host;
  std::int8_t device = -1;  // the device's index
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t row_stride = 0;     // in elements
  std::int64_t column_stride = 0;  // likewise
  bool is_transposed = false;      // against what the owner holds
  std::shared_ptr<const void> owner = {};

  bool defined() const { return owner != nullptr; }
  std::int64_t count() const { return rows * columns; }

  /// Whether this is the very same matrix, not one with equal elements.
  bool is_same(const Matrix& other) const {
    return owner == other.owner && data == other.data && rows == other.rows && columns == other.columns &&
           is_transposed == other.is_transposed;
  }

  /// The same memory with rows and columns exchanged.
  Matrix transposed() const {
    Matrix result = *this;
    std::swap(result.rows, result.columns);
    std::swap(result.row_stride, result.column_stride);
    result.is_transposed = !is_transposed;
    return result;
  }

  /// Whether elements of a row are neighbours and rows do not overlap.
  bool has_plain_rows() const { return column_stride == 1 && (rows <= 1 || row_stride >= columns); }

  /// Whether the elements fill their memory without gaps, in either order.
  bool is_dense() const {
    const bool by_rows = (columns <= 1 || column_stride == 1) && (rows <= 1 || row_stride == columns);
    const bool by_columns = (rows <= 1 || row_stride == 1) && (columns <= 1 || column_stride == rows);
    return by_rows || by_columns;
  }

  float* floats() const { return static_cast<float*>(data); }
  std::uint8_t* bytes() const { return static_cast<std::uint8_t*>(data); }
};

/// A float32 matrix in host memory with plain rows, as gnmr/formats and gnmr/recipes take it.
inline formats::Matrix host_view(const Matrix& matrix) {
  return {matrix.floats(), static_cast<std::size_t>(matrix.rows), static_cast<std::size_t>(matrix.columns),
          static_cast<std::size_t>(matrix.row_stride)};
}

/// Whether our kernels read such elements as operands and results.
constexpr bool is_operand_type(Type type) { return type == Type::float32 || type == Type::bfloat16; }

/// The element type as kernels name it, for the types that they name.
constexpr kernels::ElementType kernel_type(Type type) {
  if (type == Type::bfloat16) return kernels::ElementType::bfloat16;
  return type == Type::float16 ? kernels::ElementType::float16 : kernels::ElementType::float32;
}

}  // namespace gnmr::low
