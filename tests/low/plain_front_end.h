// SPDX-License-Identifier: Apache-2.0
// The smallest front end of gnmr/low: float32 in vectors, and loops.
#pragma once

#include <memory>
#include <vector>

#include "gnmr/core/error.h"
#include "gnmr/formats/cast.h"
#include "gnmr/low/front_end.h"
#include "gnmr/low/quantize.h"

namespace gnmr::low::testing {

class PlainFrontEnd : public FrontEnd {
 public:
  Matrix empty(const Matrix&, Type type, std::int64_t rows, std::int64_t columns) const override {
    // What nobody has written is no number in any type.
    const auto bytes =
        std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(rows * columns * 8) + 1, std::byte{0xff});
    return {.data = bytes->data(),
            .type = type,
            .rows = rows,
            .columns = columns,
            .row_stride = columns,
            .column_stride = 1,
            .owner = bytes};
  }
  Matrix empty_vector(const Matrix& like, Type type, std::int64_t count) const override {
    return empty(like, type, count, 1);
  }
  Matrix host_like() const override { return {}; }
  void zero(const Matrix& matrix) const override {
    std::memset(matrix.data, 0, static_cast<std::size_t>(matrix.count() * bytes_of(matrix.type)));
  }
  Matrix part(const Matrix& matrix, std::int64_t first, std::int64_t rows, std::int64_t columns) const override {
    if (!matrix.is_dense() || (matrix.rows > 1 && matrix.row_stride != matrix.columns)) throw Error("has gaps");
    if (first + rows * columns > matrix.count()) throw Error("part beyond the matrix");
    Matrix part = matrix;
    part.data = matrix.bytes() + first * bytes_of(matrix.type);
    part.rows = rows;
    part.columns = columns;
    part.row_stride = columns;
    part.column_stride = 1;
    return part;
  }
  void copy_into(const Matrix& from, const Matrix& to) const override {
    if (from.rows != to.rows || from.columns != to.columns || from.type != to.type) throw Error("another shape");
    const std::int64_t size = bytes_of(from.type);
    for (std::int64_t i = 0; i < from.rows; ++i) {
      for (std::int64_t j = 0; j < from.columns; ++j) {
        std::memcpy(to.bytes() + (i * to.row_stride + j * to.column_stride) * size,
                    from.bytes() + (i * from.row_stride + j * from.column_stride) * size,
                    static_cast<std::size_t>(size));
      }
    }
  }
  Matrix to_type(const Matrix& matrix, Type type) const override {
    if (matrix.type == type) return matrix;
    throw Error("only float32");
  }
  Matrix contiguous(const Matrix& matrix) const override {
    return matrix.column_stride == 1 && matrix.row_stride == matrix.columns ? matrix : copy(matrix);
  }
  Matrix copy(const Matrix& matrix) const override {
    return made(matrix.rows, matrix.columns, [&](std::int64_t i, std::int64_t j) { return at(matrix, i, j); });
  }
  Matrix some_rows(const Matrix& matrix, std::int64_t stride) const override {
    return made((matrix.rows + stride - 1) / stride, matrix.columns,
                [&](std::int64_t i, std::int64_t j) { return at(matrix, i * stride, j); });
  }
  Matrix bytes_on_host(const Matrix& matrix) const override { return matrix; }
  Matrix on_host(const Matrix& matrix) const override { return contiguous(matrix); }
  Matrix beside(const Matrix& matrix, const Matrix&) const override { return matrix; }
  Matrix multiply(const Matrix& left, const Matrix& right) const override {
    return made(left.rows, right.columns, [&](std::int64_t i, std::int64_t j) {
      // Most of a test's time is spent here.
      const float* a = left.floats() + i * left.row_stride;
      const float* b = right.floats() + j * right.column_stride;
      float sum = 0;
      for (std::int64_t k = left.columns; k > 0; --k, a += left.column_stride, b += right.row_stride) sum += *a * *b;
      return sum;
    });
  }
  Matrix multiply_high(recipes::Product product, const Matrix& left, const Matrix& right) const override {
    return multiply(product == recipes::Product::weight_gradient ? left.transposed() : left,
                    product == recipes::Product::forward ? right.transposed() : right);
  }
  Matrix multiply_codes(const Fp8Side&, const Fp8Side&, recipes::Grouping, Type,
                        const kernels::Fp8Plan&) const override {
    throw Error("no scaled GEMM");
  }
  Matrix values_of(const Fp8Side& side, recipes::Grouping grouping) const override {
    const auto scale = [&](std::int64_t i, std::int64_t j) {
      const float* const scales = side.scales.floats();
      if (grouping == recipes::Grouping::row) return scales[i];
      if (grouping == recipes::Grouping::tile) return scales[j / 128 * side.codes.rows + i];
      if (grouping == recipes::Grouping::block) return scales[i / 128 * side.scales.columns + j / 128];
      return scales[0];
    };
    const auto format = side.codes.type == Type::e4m3 ? formats::Format::e4m3 : formats::Format::e5m2;
    return made(side.codes.rows, side.codes.columns, [&](std::int64_t i, std::int64_t j) {
      const std::uint8_t code = side.codes.bytes()[i * side.codes.columns + j];
      float value = 0;
      formats::decode(format, {&code, 1}, {&value, 1});
      return value * scale(i, j);
    });
  }
  Matrix subtract(const Matrix& left, const Matrix& right) const override {
    return made(left.rows, left.columns,
                [&](std::int64_t i, std::int64_t j) { return at(left, i, j) - at(right, i, j); });
  }
  std::uint64_t count_differences(const Matrix& left, const Matrix& right) const override {
    std::uint64_t count = 0;
    for (std::int64_t i = 0; i < left.rows; ++i) {
      for (std::int64_t j = 0; j < left.columns; ++j) count += at(left, i, j) != at(right, i, j) ? 1U : 0U;
    }
    return count;
  }
  Matrix sum_parts(const Matrix& matrix, std::int64_t rows) const override {
    const std::int64_t columns = matrix.columns / rows;
    return made(rows, columns, [&](std::int64_t i, std::int64_t j) {
      float sum = 0;
      for (std::int64_t part = 0; part < matrix.rows; ++part) sum += at(matrix, part, i * columns + j);
      return sum;
    });
  }
  Matrix multiply_stretches(const Matrix& matrix, const std::vector<float>& entries, std::int64_t size) const override {
    return made(matrix.rows, matrix.columns, [&](std::int64_t i, std::int64_t j) {
      if (j / size * size + size > matrix.columns) return at(matrix, i, j);
      float sum = 0;
      for (std::int64_t k = 0; k < size; ++k) {
        sum += at(matrix, i, j / size * size + k) * entries[static_cast<std::size_t>(k * size + j % size)];
      }
      return sum;
    });
  }
  ParallelFor threads(std::int64_t) const override { return run_alone; }
  void* stream(const Matrix&) const override { return nullptr; }
  Matrix quantize_by_operators(const Matrix&, const NumberCast&) const override { throw Error("no operators"); }
  float amax_by_operators(const Matrix&) const override { throw Error("no operators"); }
  double square_by_operators(const Matrix& matrix) const override {
    double sum = 0;
    for (std::int64_t i = 0; i < matrix.rows; ++i) {
      for (std::int64_t j = 0; j < matrix.columns; ++j) sum += double{at(matrix, i, j)} * double{at(matrix, i, j)};
    }
    return sum;
  }

  static std::int64_t bytes_of(Type type) {
    if (type == Type::float32) return 4;
    return type == Type::float64 ? 8 : 1;
  }

  static float at(const Matrix& matrix, std::int64_t row, std::int64_t column) {
    return matrix.floats()[row * matrix.row_stride + column * matrix.column_stride];
  }

  /// A matrix of these numbers.
  template <class Number>
  Matrix made(std::int64_t rows, std::int64_t columns, const Number& number) const {
    const Matrix result = empty({}, Type::float32, rows, columns);
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < columns; ++j) result.floats()[i * columns + j] = number(i, j);
    }
    return result;
  }
};

}  // namespace gnmr::low::testing
