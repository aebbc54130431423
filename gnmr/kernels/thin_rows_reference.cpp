// SPDX-License-Identifier: Apache-2.0
#include "gnmr/kernels/thin_rows_reference.h"

#include <cmath>
#include <string>

#include "gnmr/core/error.h"

namespace gnmr::kernels {
namespace {

double element(const ThinMatrix& matrix, std::uint64_t row, std::uint64_t column) {
  return load_element(matrix.data, row * matrix.columns + column, matrix.type);
}

ReferenceSums zeros(std::size_t count) { return {std::vector<double>(count), std::vector<double>(count)}; }

void add(ReferenceSums& sums, std::size_t at, double value) {
  sums.sums[at] += value;
  sums.magnitudes[at] += std::abs(value);
}

}  // namespace

bool row_sign(std::uint64_t seed, std::uint64_t row) {
  std::uint64_t bits = seed + (row / 64 + 1) * 0x9e3779b97f4a7c15u;
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9u;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebu;
  bits ^= bits >> 31;
  return (bits >> (row % 64) & 1u) != 0;
}

void check_thin(const ThinMatrix& matrix, std::uint32_t vectors) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 24;
  if (matrix.type != ElementType::float32 && matrix.type != ElementType::bfloat16) {
    throw Error("[thin_rows] expected float32 or bfloat16 elements");
  }
  if (matrix.rows >= kMost || matrix.columns >= kMost) {
    throw Error("[thin_rows] expected less than 2^24 rows and columns, got " + std::to_string(matrix.rows) + " x " +
                std::to_string(matrix.columns));
  }
  if (vectors < 1 || vectors > kMostThinVectors) {
    throw Error("[thin_rows] expected 1 to 4 vectors, got " + std::to_string(vectors));
  }
}

ReferenceSums reference_group_rows(const ThinMatrix& matrix, std::uint64_t seed, double* squared_norm) {
  const std::uint64_t groups = row_groups(matrix.rows);
  ReferenceSums sums = zeros(groups * matrix.columns);
  double squares = 0;
  for (std::uint64_t group = 0; group < groups; ++group) {
    for (std::uint64_t row = group * matrix.rows / groups; row < (group + 1) * matrix.rows / groups; ++row) {
      const double sign = row_sign(seed, row) ? 1 : -1;
      for (std::uint64_t column = 0; column < matrix.columns; ++column) {
        const double value = element(matrix, row, column);
        add(sums, group * matrix.columns + column, sign * value);
        squares += value * value;
      }
    }
  }
  if (squared_norm != nullptr) *squared_norm = squares;
  return sums;
}

ReferenceSums reference_multiply(const ThinMatrix& matrix, const float* vectors, std::uint32_t count) {
  ReferenceSums sums = zeros(count * matrix.rows);
  for (std::uint32_t k = 0; k < count; ++k) {
    for (std::uint64_t row = 0; row < matrix.rows; ++row) {
      for (std::uint64_t column = 0; column < matrix.columns; ++column) {
        const auto factor = static_cast<double>(vectors[k * matrix.columns + column]);
        add(sums, k * matrix.rows + row, element(matrix, row, column) * factor);
      }
    }
  }
  return sums;
}

ReferenceSums reference_multiply_transposed(const ThinMatrix& matrix, const float* vectors, std::uint32_t count) {
  ReferenceSums sums = zeros(count * matrix.columns);
  for (std::uint32_t k = 0; k < count; ++k) {
    for (std::uint64_t row = 0; row < matrix.rows; ++row) {
      const auto factor = static_cast<double>(vectors[k * matrix.rows + row]);
      for (std::uint64_t column = 0; column < matrix.columns; ++column) {
        add(sums, k * matrix.columns + column, element(matrix, row, column) * factor);
      }
    }
  }
  return sums;
}

}  // namespace gnmr::kernels
