// SPDX-License-Identifier: Apache-2.0
#include "gnmr/low/error_sums.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "gnmr/core/error.h"
#include "gnmr/kernels/host_squares.h"
#include "gnmr/kernels/thin_rows.h"
#include "gnmr/low/thin_product.h"

namespace gnmr::low {
namespace {

void add(double difference, double reference, ErrorSums& sums) {
  sums.difference += std::isfinite(difference) ? difference : std::numeric_limits<double>::infinity();
  sums.reference += reference;
  sums.measured = true;
}

/// Adds what two projections on `vectors` signs say; `size` is the squared norm of the low result. The squares are
/// `vectors` times too large, and so is the reference: vectors |low|^2 |high x signs|^2 / |low x signs|^2.
void add_projections(const FrontEnd& front_end, double size, const Matrix& low, const Matrix& high, ErrorSums& sums) {
  const double high_square = squared_norm(front_end, high);
  if (!std::isfinite(high_square)) return;
  const double all = static_cast<double>(high.columns) * size;
  if (!std::isfinite(all)) {
    add(all, high_square, sums);
    return;
  }
  const double low_square = squared_norm(front_end, low);
  // A result that is nearly of rank one has a projection of any length, but so has the other one: the size of the low
  // result is known, and how much longer the high one is shows in the projections.
  const double reference = low_square > 0 ? all * (high_square / low_square) : high_square;
  add(squared_norm(front_end, front_end.subtract(low, high)), reference, sums);
}

// On a device.

kernels::ElementType element_type(const Matrix& matrix) {
  if (is_operand_type(matrix.type)) return kernel_type(matrix.type);
  throw Error("expected float32 or bfloat16 on a CUDA device");
}

std::uint64_t count_of(const Matrix& matrix) { return static_cast<std::uint64_t>(matrix.count()); }

kernels::ThinMatrix thin_matrix(const Matrix& matrix) {
  return {.data = matrix.data,
          .type = element_type(matrix),
          .rows = static_cast<std::uint64_t>(matrix.rows),
          .columns = static_cast<std::uint64_t>(matrix.columns)};
}

kernels::ResultView view_of(const Matrix& matrix) { return {matrix.data, element_type(matrix)}; }

Matrix workspace(const FrontEnd& front_end, std::size_t bytes, const Matrix& like) {
  return front_end.empty_vector(like, Type::byte, static_cast<std::int64_t>(bytes));
}

/// Vectors of signs, [vectors, length]: the transposed matrix of `random_signs`.
Matrix sign_vectors(const FrontEnd& front_end, std::int64_t length, std::int64_t vectors, std::uint64_t seed,
                    const Matrix& like) {
  const Matrix signs = front_end.empty(like, Type::float32, vectors, length);
  kernels::random_signs(static_cast<std::uint64_t>(length), static_cast<std::uint64_t>(vectors), seed,
                        kernels::SignLayout::by_columns, signs.floats(), front_end.stream(like));
  return signs;
}

/// matrix [m, n] times vectors [k, n], as vectors [k, m].
Matrix times_vectors(const FrontEnd& front_end, const Matrix& matrix, const Matrix& vectors) {
  const Matrix source = readable(front_end, matrix);
  const Matrix results = front_end.empty(source, Type::float32, vectors.rows, source.rows);
  kernels::multiply_thin(thin_matrix(source), vectors.floats(), static_cast<std::uint32_t>(vectors.rows),
                         results.floats(), front_end.stream(source));
  return results;
}

/// The transposed matrix [m, n] times vectors [k, m], as vectors [k, n].
Matrix transposed_times_vectors(const FrontEnd& front_end, const Matrix& matrix, const Matrix& vectors) {
  const Matrix source = readable(front_end, matrix);
  const kernels::ThinMatrix thin = thin_matrix(source);
  const auto count = static_cast<std::uint32_t>(vectors.rows);
  const Matrix results = front_end.empty(source, Type::float32, vectors.rows, source.columns);
  const Matrix space = workspace(front_end, kernels::multiply_transposed_workspace_bytes(thin, count), source);
  kernels::multiply_transposed(thin, vectors.floats(), count, results.floats(), space.data, front_end.stream(source));
  return results;
}

/// Sums of groups of rows; `square` (null: not wanted) becomes the squared norm.
Matrix grouped_on_device(const FrontEnd& front_end, const Matrix& matrix, std::uint64_t seed, double* square) {
  const kernels::ThinMatrix thin = thin_matrix(matrix);
  const Matrix sums =
      front_end.empty(matrix, Type::float32, static_cast<std::int64_t>(kernels::row_groups(thin.rows)), matrix.columns);
  const Matrix space = workspace(front_end, kernels::group_rows_workspace_bytes(thin), matrix);
  kernels::group_rows(thin, seed, sums.floats(), square, space.data, front_end.stream(matrix));
  return sums;
}

void add_projections_on_device(const FrontEnd& front_end, const double* size, const Matrix& low, const Matrix& high,
                               std::int64_t vectors, kernels::ErrorTotals* totals) {
  kernels::add_projections(size, low.floats(), high.floats(), count_of(low), static_cast<std::uint32_t>(vectors),
                           totals, front_end.stream(low));
}

void add_rows_error_on_device(const FrontEnd& front_end, const Matrix& low, const Matrix& left, const Matrix& weight,
                              bool is_transposed, std::uint64_t seed, kernels::ErrorTotals* totals) {
  const std::uint64_t rows_seed = ~seed;
  const Matrix size = front_end.empty_vector(low, Type::float64, 1);
  auto* const square = static_cast<double*>(size.data);
  const Matrix signs = sign_vectors(front_end, low.columns, kProbeVectors, seed, low);
  const Matrix low_sums = grouped_on_device(front_end, readable(front_end, low), rows_seed, square);
  const Matrix left_sums = grouped_on_device(front_end, readable(front_end, left), rows_seed, nullptr);
  const Matrix right_signs =
      is_transposed ? transposed_times_vectors(front_end, weight, signs) : times_vectors(front_end, weight, signs);
  const Matrix high_projected = times_vectors(front_end, left_sums, right_signs);
  const Matrix low_projected = times_vectors(front_end, low_sums, signs);
  add_projections_on_device(front_end, square, low_projected, high_projected, kProbeVectors, totals);
}

void add_weight_error_on_device(const FrontEnd& front_end, const Matrix& low, const Matrix& gradient,
                                const Matrix& projected_input, std::uint64_t seed, kernels::ErrorTotals* totals) {
  const Matrix signs = sign_vectors(front_end, low.columns, kWeightProbeVectors, seed, low);
  const Matrix projected = transposed_times_vectors(front_end, gradient, projected_input);
  const Matrix size = front_end.empty_vector(low, Type::float64, 1);
  front_end.zero(size);
  auto* const square = static_cast<double*>(size.data);
  add_square(front_end, low, square);
  const Matrix low_projected = times_vectors(front_end, low, signs);
  add_projections_on_device(front_end, square, low_projected, projected, kWeightProbeVectors, totals);
}

/// Sums over thousands of elements do not fit into float16.
Matrix wide(const FrontEnd& front_end, const Matrix& matrix) {
  return matrix.type == Type::float16 ? front_end.to_type(matrix, Type::float32) : matrix;
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

void add_square(const FrontEnd& front_end, const Matrix& matrix, double* sum) {
  const Matrix source = readable(front_end, matrix);
  if (source.count() == 0) return;
  const Matrix space = workspace(front_end, kernels::compare_workspace_bytes(count_of(source)), source);
  kernels::add_square(view_of(source), count_of(source), sum, space.data, front_end.stream(source));
}

void add_error(const FrontEnd& front_end, const Matrix& low, const Matrix& high, const ErrorPlace& place) {
  if (high.count() == 0) return;
  if (place.totals != nullptr) {
    const Matrix low_source = readable(front_end, low);
    const Matrix high_source = readable(front_end, high);
    const Matrix space = workspace(front_end, kernels::compare_workspace_bytes(count_of(high)), high);
    kernels::add_error(view_of(low_source), view_of(high_source), count_of(high), place.totals, space.data,
                       front_end.stream(high));
    return;
  }
  const double reference = squared_norm(front_end, high);
  if (!std::isfinite(reference)) return;
  add(squared_norm(front_end, front_end.subtract(low, high)), reference, *place.sums);
}

void add_rows_error(const FrontEnd& front_end, const Matrix& low, const Matrix& left, const Matrix& weight,
                    bool is_transposed, std::uint64_t seed, const ErrorPlace& place) {
  if (low.count() == 0) return;  // no tokens say nothing
  if (place.totals != nullptr) {
    add_rows_error_on_device(front_end, low, left, weight, is_transposed, seed, place.totals);
    return;
  }
  const Matrix right = wide(front_end, is_transposed ? weight.transposed() : weight);
  const Matrix wide_low = wide(front_end, low);
  const Matrix signs = random_signs(front_end, right.columns, kProbeVectors, seed, wide_low);
  const std::uint64_t rows_seed = ~seed;
  const GroupedRows low_rows = grouped_rows(front_end, wide_low, rows_seed);
  const Matrix high = thin_product(front_end, grouped_rows(front_end, wide(front_end, left), rows_seed).sums,
                                   thin_product(front_end, right, signs));
  add_projections(front_end, low_rows.squared_norm, thin_product(front_end, low_rows.sums, signs), high, *place.sums);
}

Matrix project_input(const FrontEnd& front_end, const Matrix& input, std::uint64_t seed) {
  if (input.place == Place::device) {
    return times_vectors(front_end, input, sign_vectors(front_end, input.columns, kWeightProbeVectors, seed, input));
  }
  const Matrix source = wide(front_end, input);
  return thin_product(front_end, source, random_signs(front_end, source.columns, kWeightProbeVectors, seed, source));
}

void add_weight_error(const FrontEnd& front_end, const Matrix& low, const Matrix& gradient,
                      const Matrix& projected_input, std::uint64_t seed, const ErrorPlace& place) {
  if (gradient.count() == 0 || low.count() == 0) return;
  if (place.totals != nullptr) {
    add_weight_error_on_device(front_end, low, gradient, projected_input, seed, place.totals);
    return;
  }
  const Matrix wide_low = wide(front_end, low);
  const Matrix signs = random_signs(front_end, low.columns, kWeightProbeVectors, seed, wide_low);
  add_projected_error(front_end, wide_low, signs,
                      thin_product(front_end, wide(front_end, gradient.transposed()), projected_input), *place.sums);
}

void add_projected_error(const FrontEnd& front_end, const Matrix& low, const Matrix& signs, const Matrix& projected,
                         ErrorSums& sums) {
  add_projections(front_end, squared_norm(front_end, low), thin_product(front_end, low, signs), projected, sums);
}

Matrix random_signs(const FrontEnd& front_end, std::int64_t rows, std::int64_t columns, std::uint64_t seed,
                    const Matrix& like) {
  const Matrix signs = front_end.empty(front_end.host_like(), Type::float32, rows, columns);
  RandomSigns random(seed);
  for (std::int64_t index = 0; index < rows * columns; ++index) signs.floats()[index] = random.next();
  return front_end.beside(front_end.to_type(signs, like.type), like);
}

double probe_multiply_adds(std::int64_t tokens, std::int64_t in_features, std::int64_t out_features) {
  const auto in = static_cast<double>(in_features);
  const auto out = static_cast<double>(out_features);
  const auto all = static_cast<double>(tokens);
  const double groups = std::min(all, static_cast<double>(kRowGroups));
  const double by_rows = all * (in + out) + kProbeVectors * (in * out + groups * (in + out));
  const double by_weights = kWeightProbeVectors * (in * out + all * (in + out));
  return 2 * by_rows + by_weights;
}

double probe_bytes(std::int64_t tokens, std::int64_t in_features, std::int64_t out_features, double element_bytes) {
  const auto in = static_cast<double>(in_features);
  const auto out = static_cast<double>(out_features);
  const auto all = static_cast<double>(tokens);
  const double by_rows = all * (in + out) + in * out;         // both results of tokens have as much to read
  const double by_weights = 2 * in * out + all * (in + out);  // its gradient for its norm and for its projection
  return element_bytes * (2 * by_rows + by_weights);
}

}  // namespace gnmr::low
