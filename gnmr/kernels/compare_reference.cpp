// SPDX-License-Identifier: Apache-2.0
#include "gnmr/kernels/compare_reference.h"

#include <cmath>
#include <limits>

#include "gnmr/core/error.h"
#include "gnmr/kernels/thin_rows.h"

namespace gnmr::kernels {
namespace {

void add(double difference, double reference, ErrorTotals& totals) {
  totals.difference += std::isfinite(difference) ? difference : std::numeric_limits<double>::infinity();
  totals.reference += reference;
  totals.measured += 1;
}

double difference_of(const ResultView& low, const ResultView& high, std::uint64_t index) {
  const auto of_low = static_cast<float>(load_element(low.data, index, low.type));
  const auto of_high = static_cast<float>(load_element(high.data, index, high.type));
  return static_cast<double>(of_low - of_high);
}

}  // namespace

void check_result(const ResultView& view, std::uint64_t count) {
  if (view.type != ElementType::float32 && view.type != ElementType::bfloat16) {
    throw Error("[compare] expected float32 or bfloat16 elements");
  }
  if (count == 0) return;
  if (view.data == nullptr) throw Error("[compare] expected an address of elements, got none");
  if (reinterpret_cast<std::uintptr_t>(view.data) % bytes_of(view.type) != 0) {
    throw Error("[compare] expected elements at their alignment");
  }
}

void reference_add_error(const ResultView& low, const ResultView& high, std::uint64_t count, ErrorTotals& totals) {
  double difference = 0;
  double reference = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    difference += difference_of(low, high, i) * difference_of(low, high, i);
    reference += load_element(high.data, i, high.type) * load_element(high.data, i, high.type);
  }
  if (std::isfinite(reference)) add(difference, reference, totals);
}

void reference_add_square(const ResultView& matrix, std::uint64_t count, double& sum) {
  for (std::uint64_t i = 0; i < count; ++i) {
    sum += load_element(matrix.data, i, matrix.type) * load_element(matrix.data, i, matrix.type);
  }
}

void reference_add_projections(double size, const float* low, const float* high, std::uint64_t count,
                               std::uint32_t vectors, ErrorTotals& totals) {
  double low_square = 0;
  double high_square = 0;
  reference_add_square({low, ElementType::float32}, count, low_square);
  reference_add_square({high, ElementType::float32}, count, high_square);
  if (!std::isfinite(high_square)) return;
  const double all = vectors * size;
  if (!std::isfinite(all)) {
    add(all, high_square, totals);
    return;
  }
  ErrorTotals projected{};
  reference_add_error({low, ElementType::float32}, {high, ElementType::float32}, count, projected);
  add(projected.difference, low_square > 0 ? all * (high_square / low_square) : high_square, totals);
}

std::vector<float> reference_signs(std::uint64_t rows, std::uint64_t columns, std::uint64_t seed, SignLayout layout) {
  std::vector<float> signs(rows * columns);
  for (std::uint64_t row = 0; row < rows; ++row) {
    for (std::uint64_t column = 0; column < columns; ++column) {
      const std::uint64_t index = row * columns + column;
      signs[layout == SignLayout::by_rows ? index : column * rows + row] = row_sign(seed, index) ? 1.0f : -1.0f;
    }
  }
  return signs;
}

}  // namespace gnmr::kernels
