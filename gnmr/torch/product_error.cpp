// SPDX-License-Identifier: Apache-2.0
#include "gnmr/torch/product_error.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "gnmr/formats/element.h"
#include "gnmr/torch/squared_norm.h"

namespace gnmr::nn {
namespace {

void add(double difference, double reference, ErrorSums& sums) {
  sums.difference += std::isfinite(difference) ? difference : std::numeric_limits<double>::infinity();
  sums.reference += reference;
  sums.measured = true;
}

std::uint64_t next_bits(std::uint64_t& state) {
  state += 0x9e3779b97f4a7c15u;
  std::uint64_t bits = state;
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9u;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebu;
  return bits ^ (bits >> 31);
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

void add_projected_error(const at::Tensor& low, const at::Tensor& signs, const at::Tensor& projected, ErrorSums& sums) {
  const double high = squared_norm(projected);
  if (!std::isfinite(high)) return;
  const double size = static_cast<double>(signs.size(1)) * squared_norm(low);
  if (!std::isfinite(size)) {
    add(size, high, sums);
    return;
  }
  const at::Tensor low_projected = at::mm(low, signs);
  const double shrunk = squared_norm(low_projected);
  // A result that is nearly of rank one has a projection of any length, but so has the other one: the size of the low
  // result is known, and how much longer the high one is shows in the projections.
  const double reference = shrunk > 0 ? size * (high / shrunk) : high;
  add(squared_norm(low_projected - projected), reference, sums);
}

at::Tensor random_signs(std::int64_t rows, std::int64_t columns, std::uint64_t seed, const at::Tensor& like) {
  at::Tensor signs = at::empty({rows, columns}, at::TensorOptions().dtype(at::kFloat));
  float* const values = signs.mutable_data_ptr<float>();
  std::uint64_t state = seed;
  std::uint64_t bits = 0;
  for (std::int64_t index = 0; index < rows * columns; ++index) {
    if (index % 64 == 0) bits = next_bits(state);
    values[index] = (bits & 1U) != 0 ? 1.0f : -1.0f;
    bits >>= 1U;
  }
  return signs.to(like.options());
}

at::Tensor probe_rows(const at::Tensor& matrix, std::uint64_t seed) {
  const std::int64_t rows = matrix.size(0);
  if (rows <= kProbeRows) return matrix;
  const std::int64_t stride = (rows + kProbeRows - 1) / kProbeRows;
  return matrix.slice(0, static_cast<std::int64_t>(seed % static_cast<std::uint64_t>(stride)), rows, stride);
}

double probe_multiply_adds(std::int64_t tokens, std::int64_t in_features, std::int64_t out_features) {
  const auto in = static_cast<double>(in_features);
  const auto out = static_cast<double>(out_features);
  const auto all = static_cast<double>(tokens);
  const double rows = std::min(all, static_cast<double>(kProbeRows));
  const double by_rows = in * out + rows * (in + out);
  const double by_weights = in * out + all * (in + out);
  return 2 * kProbeVectors * by_rows + kWeightProbeVectors * by_weights;
}

double expected_error(const recipes::Recipe& recipe, recipes::Product product) {
  constexpr double kRoundingShare = 0.189;  // root mean square of half a step's rounding, over mantissas in [1, 2)
  double square = 0;
  for (std::size_t place = 0; place < 2; ++place) {
    const auto& rule = recipe.rule(product, place);
    if (!rule) continue;
    const formats::Layout layout = formats::layout_of(rule->format);
    if (layout.is_integer || layout.mantissa_bits < 2) return 0;
    const double one = kRoundingShare * std::exp2(-layout.mantissa_bits);
    square += one * one * (rule->rounding == formats::Rounding::stochastic ? 2 : 1);
  }
  return std::sqrt(square);
}

}  // namespace gnmr::nn
