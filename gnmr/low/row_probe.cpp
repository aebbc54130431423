// SPDX-License-Identifier: Apache-2.0
#include "gnmr/low/row_probe.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "gnmr/low/row_sample.h"
#include "gnmr/low/thin_product.h"

namespace gnmr::low {
namespace {

constexpr auto kRows = static_cast<std::int64_t>(kernels::kSampledRows);

// On the host.

/// A matrix times signs for its columns, in host memory, float32 [rows, kSignVectors].
Matrix times_signs(const FrontEnd& front_end, const Matrix& matrix, std::uint64_t seed) {
  const Matrix source = front_end.to_type(matrix, Type::float32);
  const Matrix signs = front_end.beside(random_signs(front_end, source.columns, seed), source);
  return front_end.on_host(thin_product(front_end, source, signs));
}

/// Adds rows of a low result whose high rows have these projections [rows, kSignVectors].
void add_projected(const FrontEnd& front_end, const Matrix& low, const Matrix& high, std::uint64_t signs_seed,
                   ErrorSums& sums) {
  const Matrix projected = thin_product(front_end, low, random_signs(front_end, low.columns, signs_seed));
  const std::vector<double> sizes = squared_norms_of_rows(front_end, low);
  std::vector<kernels::ProjectedRow> rows;
  for (std::int64_t row = 0; row < low.rows; ++row) {
    kernels::ProjectedRow& one = rows.emplace_back();
    one.size = sizes[static_cast<std::size_t>(row)];
    for (std::int64_t k = 0; k < kSignVectors; ++k) {
      const double of_low = projected.floats()[row * kSignVectors + k];
      const double of_high = high.floats()[row * kSignVectors + k];
      one.low += of_low * of_low;
      one.high += of_high * of_high;
      one.difference += (of_low - of_high) * (of_low - of_high);
    }
  }
  sums.add(std::span<const kernels::ProjectedRow>(rows));
}

// On a device.

/// Vectors one after the other.
Matrix empty_vectors(const FrontEnd& front_end, std::int64_t length, const Matrix& like) {
  return front_end.empty(like, Type::float32, kSignVectors, length);
}

void multiply_signs(const FrontEnd& front_end, const Matrix& matrix, const kernels::SignProducts& products) {
  const Matrix space = workspace(front_end, kernels::multiply_signs_workspace_bytes(rows_view(matrix)), matrix);
  kernels::multiply_signs(rows_view(matrix), products, space.data, front_end.stream(matrix));
}

}  // namespace

WeightProducts project_weight(const FrontEnd& front_end, const Matrix& weight,
                              std::optional<std::uint64_t> forward_signs, std::optional<std::uint64_t> dgrad_signs) {
  WeightProducts made;
  if (weight.place != Place::device) {
    if (forward_signs) made.of_inputs = times_signs(front_end, weight.transposed(), *forward_signs);
    if (dgrad_signs) made.of_outputs = times_signs(front_end, weight, *dgrad_signs);
    return made;
  }
  const Matrix source = readable(front_end, weight);
  kernels::SignProducts products;
  if (forward_signs) {
    made.of_inputs = empty_vectors(front_end, source.columns, source);
    products.by_rows_seed = *forward_signs;
    products.of_columns = made.of_inputs.floats();
  }
  if (dgrad_signs) {
    made.of_outputs = empty_vectors(front_end, source.rows, source);
    products.by_columns_seed = *dgrad_signs;
    products.of_rows = made.of_outputs.floats();
  }
  multiply_signs(front_end, source, products);
  return made;
}

void add_rows_error(const FrontEnd& front_end, const Matrix& low, const Matrix& left, const Matrix& right_signs,
                    const ProbeSeeds& seeds, const ErrorPlace& place) {
  if (low.count() == 0) return;  // no tokens say nothing
  if (place.on_device.totals != nullptr) {
    const Matrix low_source = readable(front_end, low);
    const Matrix left_source = readable(front_end, left);
    const Matrix space = workspace(front_end, kernels::sampled_rows_workspace_bytes(), low_source);
    kernels::add_sampled_rows({.low = rows_view(low_source),
                               .left = rows_view(left_source),
                               .right_signs = right_signs.floats(),
                               .signs_seed = seeds.signs,
                               .sample_seed = seeds.rows},
                              place.on_device, space.data, front_end.stream(low));
    return;
  }
  const kernels::RowSample sample{.seed = seeds.rows, .rows = count_of_rows(low)};
  const Matrix high = thin_product(front_end, sampled_rows(front_end, left, sample), right_signs);
  add_projected(front_end, sampled_rows(front_end, low, sample), high, seeds.signs, *place.sums);
}

Matrix project_input(const FrontEnd& front_end, const Matrix& input, std::uint64_t signs) {
  if (input.place != Place::device) return times_signs(front_end, input, signs);
  const Matrix source = readable(front_end, input);
  const Matrix products = empty_vectors(front_end, source.rows, source);
  multiply_signs(front_end, source, {.by_columns_seed = signs, .of_rows = products.floats()});
  return products;
}

void add_weight_error(const FrontEnd& front_end, const Matrix& low, const Matrix& gradient, const Matrix& input_signs,
                      const ProbeSeeds& seeds, const ErrorPlace& place) {
  if (gradient.count() == 0 || low.count() == 0) return;
  if (place.on_device.totals != nullptr) {
    const Matrix low_source = readable(front_end, low);
    const Matrix gradient_source = readable(front_end, gradient);
    const std::size_t bytes = kernels::sampled_outputs_workspace_bytes(count_of_rows(gradient));
    const Matrix space = workspace(front_end, bytes, low_source);
    kernels::add_sampled_outputs({.low = rows_view(low_source),
                                  .gradient = rows_view(gradient_source),
                                  .input_signs = input_signs.floats(),
                                  .signs_seed = seeds.signs,
                                  .sample_seed = seeds.rows},
                                 place.on_device, space.data, front_end.stream(low));
    return;
  }
  const kernels::RowSample sample{.seed = seeds.rows, .rows = count_of_rows(low), .run = kernels::kRunOfOutputs};
  const Matrix columns = sampled_columns(front_end, gradient, sample);
  const Matrix high = front_end.contiguous(thin_product(front_end, columns.transposed(), input_signs));
  add_projected(front_end, sampled_rows(front_end, low, sample), high, seeds.signs, *place.sums);
}

Matrix random_signs(const FrontEnd& front_end, std::int64_t length, std::uint64_t seed) {
  const Matrix signs = front_end.empty(front_end.host_like(), Type::float32, length, kSignVectors);
  RandomSigns random(seed);
  for (std::int64_t index = 0; index < signs.count(); ++index) signs.floats()[index] = random.next();
  return signs;
}

double probe_multiply_adds(std::int64_t tokens, std::int64_t in_features, std::int64_t out_features) {
  const auto in = static_cast<double>(in_features);
  const auto out = static_cast<double>(out_features);
  const auto all = static_cast<double>(tokens);
  const auto rows = static_cast<double>(std::min(tokens, kRows));
  const auto outputs = static_cast<double>(std::min(out_features, kRows));
  constexpr auto kVectors = static_cast<double>(kSignVectors);
  // Forward and dgrad: projections of both rows, and the norms of the low ones.
  const double by_rows = rows * (2 * kVectors + 1) * (in + out);
  const double by_weights = kVectors * all * (in + outputs) + (kVectors + 1) * outputs * in;
  return 2 * kVectors * in * out + by_rows + by_weights;
}

double probe_bytes(std::int64_t tokens, std::int64_t in_features, std::int64_t out_features, double element_bytes) {
  const auto in = static_cast<double>(in_features);
  const auto out = static_cast<double>(out_features);
  const auto all = static_cast<double>(tokens);
  const auto rows = static_cast<double>(std::min(tokens, kRows));
  const auto outputs = static_cast<double>(std::min(out_features, kRows));
  return element_bytes * (in * out + 2 * rows * (in + out) + all * (in + outputs) + outputs * in);
}

}  // namespace gnmr::low
