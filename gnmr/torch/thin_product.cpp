// SPDX-License-Identifier: Apache-2.0
#include "gnmr/torch/thin_product.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "gnmr/torch/squared_norm.h"
#include "gnmr/torch/thin_loops.h"

namespace gnmr::nn {
namespace {

constexpr std::int64_t kTaskElements = 32768;  // what is worth a thread

bool is_float_on_cpu(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.scalar_type() == at::kFloat && tensor.dim() == 2;
}

bool has_rows(const at::Tensor& matrix) {
  return matrix.size(1) <= 1 || (matrix.stride(1) == 1 && matrix.stride(0) >= matrix.size(1));
}

Rows rows_of(const at::Tensor& matrix) {
  return {matrix.const_data_ptr<float>(), matrix.size(0), matrix.size(1), matrix.stride(0)};
}

std::int64_t grain(std::int64_t width) {
  return std::max<std::int64_t>(1, kTaskElements / std::max<std::int64_t>(1, width));
}

at::Tensor rows_times_thin(const at::Tensor& matrix, const at::Tensor& thin) {
  const Rows rows = rows_of(matrix);
  const at::Tensor vectors = thin.t().contiguous();
  at::Tensor result = at::empty({rows.count, thin.size(1)}, matrix.options());
  const auto* const from = vectors.const_data_ptr<float>();
  auto* const to = result.mutable_data_ptr<float>();
  at::parallel_for(0, rows.count, grain(rows.width),
                   [&](std::int64_t first, std::int64_t last) { dot_rows(rows, first, last, thin.size(1), from, to); });
  return result;
}

/// The transposed matrix has rows: sums of parts of them, then of the parts, in a fixed order.
at::Tensor columns_times_thin(const at::Tensor& transposed, const at::Tensor& thin) {
  const Rows rows = rows_of(transposed);
  const std::int64_t count = thin.size(1);
  const at::Tensor coefficients = thin.contiguous();
  const auto* const from = coefficients.const_data_ptr<float>();
  const std::int64_t part_rows = grain(rows.width);
  const std::int64_t parts = std::max<std::int64_t>(1, (rows.count + part_rows - 1) / part_rows);
  at::Tensor sums = at::empty({parts, count, rows.width}, transposed.options());
  auto* const to = sums.mutable_data_ptr<float>();
  at::parallel_for(0, parts, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t part = first; part < last; ++part) {
      add_rows(rows, part * part_rows, std::min(rows.count, (part + 1) * part_rows), count, from,
               to + part * count * rows.width);
    }
  });
  return (parts == 1 ? sums[0] : sums.sum(0)).t();
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

at::Tensor thin_product(const at::Tensor& matrix, const at::Tensor& thin) {
  if (is_float_on_cpu(matrix) && is_float_on_cpu(thin) && thin.size(1) >= 1 && thin.size(1) <= kMaxThinColumns) {
    if (has_rows(matrix)) return rows_times_thin(matrix, thin);
    if (has_rows(matrix.t())) return columns_times_thin(matrix.t(), thin);
  }
  return at::mm(matrix, thin);
}

GroupedRows grouped_rows(const at::Tensor& matrix, std::uint64_t seed) {
  const std::int64_t count = matrix.size(0);
  const std::int64_t groups = std::min(count, kRowGroups);
  const auto first_of = [&](std::int64_t group) { return group * count / groups; };
  std::vector<float> signs(static_cast<std::size_t>(count));
  RandomSigns random(seed);
  for (float& sign : signs) sign = random.next();
  if (!is_float_on_cpu(matrix) || !has_rows(matrix)) {
    at::Tensor selection = at::zeros({groups, count}, at::TensorOptions().dtype(at::kFloat));
    auto* const values = selection.mutable_data_ptr<float>();
    for (std::int64_t group = 0; group < groups; ++group) {
      for (std::int64_t row = first_of(group); row < first_of(group + 1); ++row) {
        values[group * count + row] = signs[static_cast<std::size_t>(row)];
      }
    }
    return {at::mm(selection.to(matrix.options()), matrix), squared_norm(matrix)};
  }
  const Rows rows = rows_of(matrix);
  at::Tensor sums = at::empty({groups, rows.width}, matrix.options());
  auto* const to = sums.mutable_data_ptr<float>();
  std::array<double, kRowGroups> squares{};
  const std::int64_t group_rows = std::max<std::int64_t>(1, count / std::max<std::int64_t>(1, groups));
  at::parallel_for(0, groups, grain(rows.width * group_rows), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t group = first; group < last; ++group) {
      squares[static_cast<std::size_t>(group)] = static_cast<double>(
          add_signed_rows(rows, first_of(group), first_of(group + 1), signs.data(), to + group * rows.width));
    }
  });
  double sum = 0;
  for (const double square : squares) sum += square;
  // Squares of very large and very small numbers do not fit into float32; the slow way keeps them.
  constexpr double kSmallest = 1e-30;
  return {sums, std::isfinite(sum) && sum > kSmallest ? sum : squared_norm(matrix)};
}

}  // namespace gnmr::nn
