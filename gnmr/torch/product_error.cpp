// SPDX-License-Identifier: Apache-2.0
#include "gnmr/torch/product_error.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "gnmr/torch/squared_norm.h"
#include "gnmr/torch/thin_product.h"

namespace gnmr::nn {
namespace {

void add(double difference, double reference, ErrorSums& sums) {
  sums.difference += std::isfinite(difference) ? difference : std::numeric_limits<double>::infinity();
  sums.reference += reference;
  sums.measured = true;
}

/// Adds what two projections on `vectors` signs say; `size` is the squared norm of the low result. The squares are
/// `vectors` times too large, and so is the reference: vectors |low|^2 |high x signs|^2 / |low x signs|^2.
void add_projections(double size, const at::Tensor& low, const at::Tensor& high, ErrorSums& sums) {
  const double high_square = squared_norm(high);
  if (!std::isfinite(high_square)) return;
  const double all = static_cast<double>(high.size(1)) * size;
  if (!std::isfinite(all)) {
    add(all, high_square, sums);
    return;
  }
  const double low_square = squared_norm(low);
  // A result that is nearly of rank one has a projection of any length, but so has the other one: the size of the low
  // result is known, and how much longer the high one is shows in the projections.
  const double reference = low_square > 0 ? all * (high_square / low_square) : high_square;
  add(squared_norm(low - high), reference, sums);
}

}  // namespace

double ErrorSums::error() const {
  if (!measured) return std::numeric_limits<double>::quiet_NaN();
  if (difference == 0) return 0;
  if (!(reference > 0)) return std::numeric_limits<double>::infinity();
  return std::sqrt(difference / reference);
}

void add_error(const at::Tensor& low, const at::Tensor& high, ErrorSums& sums) {
  const double reference = squared_norm(high);
  if (!std::isfinite(reference)) return;
  add(squared_norm(low - high), reference, sums);
}

void add_rows_error(const at::Tensor& low, const at::Tensor& left, const at::Tensor& right, std::uint64_t seed,
                    ErrorSums& sums) {
  const at::Tensor signs = random_signs(right.size(1), kProbeVectors, seed, low);
  const std::uint64_t rows_seed = ~seed;
  const GroupedRows low_rows = grouped_rows(low, rows_seed);
  const at::Tensor high = thin_product(grouped_rows(left, rows_seed).sums, thin_product(right, signs));
  add_projections(low_rows.squared_norm, thin_product(low_rows.sums, signs), high, sums);
}

void add_projected_error(const at::Tensor& low, const at::Tensor& signs, const at::Tensor& projected, ErrorSums& sums) {
  add_projections(squared_norm(low), thin_product(low, signs), projected, sums);
}

at::Tensor random_signs(std::int64_t rows, std::int64_t columns, std::uint64_t seed, const at::Tensor& like) {
  at::Tensor signs = at::empty({rows, columns}, at::TensorOptions().dtype(at::kFloat));
  float* const values = signs.mutable_data_ptr<float>();
  RandomSigns random(seed);
  for (std::int64_t index = 0; index < rows * columns; ++index) values[index] = random.next();
  return signs.to(like.options());
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

}  // namespace gnmr::nn
