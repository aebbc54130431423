// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/injection/tensor_faults.h"

#include <ATen/ops/clamp.h>
#include <ATen/ops/frexp.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

namespace gnmr::lab {
namespace {

constexpr double kLargestE4m3 = 448;
constexpr std::int64_t kTopExponent = 15;      // of 4 bits
constexpr std::int64_t kLargestExponent = 11;  // of the largest: four binades of headroom

std::int64_t count_of(double share, std::int64_t whole) {
  return std::clamp<std::int64_t>(std::llround(share * static_cast<double>(whole)), 1, whole);
}

std::uint64_t unsigned_of(std::int64_t count) { return static_cast<std::uint64_t>(count); }

}  // namespace

at::Tensor largest_of(const at::Tensor& matrix) {
  const at::Tensor magnitude = matrix.abs();
  return magnitude.masked_fill(magnitude.isfinite().logical_not(), 0).max();
}

at::Tensor fp8_codes(const at::Tensor& matrix) {
  const at::Tensor scale = largest_of(matrix).to(at::kFloat) / kLargestE4m3;
  const at::Tensor scaled = matrix.to(at::kFloat) / scale.masked_fill(scale == 0, 1);
  return scaled.clamp(-kLargestE4m3, kLargestE4m3).to(at::kFloat8_e4m3fn);
}

at::Tensor values_of_codes(const at::Tensor& codes, const at::Tensor& largest) {
  return codes.to(at::kFloat) * (largest.to(at::kFloat) / kLargestE4m3);
}

double largest_magnitude(const at::Tensor& matrix) {
  return matrix.numel() == 0 ? 0 : largest_of(matrix).item<double>();
}

at::Tensor cut_at_share(const at::Tensor& matrix, double share) {
  if (matrix.numel() == 0) return matrix;
  const at::Tensor limit = largest_of(matrix) * share;
  return at::clamp(matrix, -limit, limit);
}

at::Tensor cut_at(const at::Tensor& matrix, double limit) {
  return matrix.numel() == 0 ? matrix : at::clamp(matrix, -limit, limit);
}

at::Tensor multiply_large(const at::Tensor& matrix, double factor) {
  if (matrix.numel() == 0) return matrix;
  return at::where(matrix.abs() > largest_of(matrix) / kLargeFrom, matrix * factor, matrix);
}

at::Tensor flush_below_share(const at::Tensor& matrix, double share) {
  if (matrix.numel() == 0) return matrix;
  return matrix.masked_fill(matrix.abs() < largest_of(matrix) * std::min(share, 1.0), 0);
}

at::Tensor flip_exponent_bits(const at::Tensor& matrix, double share, run::RandomStream& random) {
  if (matrix.numel() == 0) return matrix;
  const std::int64_t elements = matrix.numel();
  at::Tensor flips = at::zeros(matrix.sizes(), at::kByte);  // the weight of each element's bit; 0: none
  auto* const flip = flips.mutable_data_ptr<std::uint8_t>();
  for (std::int64_t left = count_of(share, elements); left > 0; --left) {
    const std::uint64_t element = random.below(unsigned_of(elements));
    flip[element] = static_cast<std::uint8_t>(1U << random.below(4));
  }
  flips = flips.to(matrix.device());
  const at::Tensor largest_exponent = std::get<1>(at::frexp(largest_of(matrix)));
  const at::Tensor exponent =
      (std::get<1>(at::frexp(matrix)) - largest_exponent + kLargestExponent).clamp(0, kTopExponent);
  at::Tensor result = matrix;
  for (const int weight : {1, 2, 4, 8}) {
    const at::Tensor chosen = flips == weight;
    const at::Tensor is_set = exponent.bitwise_and(weight) != 0;
    // A power of two is exact in every type.
    result = at::where(chosen.logical_and(is_set), matrix * std::ldexp(1.0, -weight), result);
    result = at::where(chosen.logical_and(is_set.logical_not()), matrix * std::ldexp(1.0, weight), result);
  }
  return result;
}

at::Tensor replace_rows(const at::Tensor& matrix, double share, run::RandomStream& random) {
  if (matrix.numel() == 0) return matrix;
  const std::int64_t rows = matrix.size(0);
  if (rows == 1) return -matrix;
  std::vector<std::int64_t> order(static_cast<std::size_t>(rows));
  std::iota(order.begin(), order.end(), 0);
  std::vector<std::int64_t> sources;
  std::vector<double> signs;
  const auto count = static_cast<std::size_t>(count_of(share, rows));
  for (std::size_t place = 0; place < count; ++place) {
    std::swap(order[place], order[place + random.below(order.size() - place)]);
    // Any row but its own.
    const std::uint64_t step = 1 + random.below(unsigned_of(rows) - 1);
    sources.push_back((order[place] + static_cast<std::int64_t>(step)) % rows);
    signs.push_back(random.below(2) == 0 ? 1 : -1);
  }
  order.resize(count);
  const auto on_device = [&](const auto& values, at::ScalarType type) {
    return at::tensor(values, at::TensorOptions().dtype(type)).to(matrix.device());
  };
  const at::Tensor wrong = matrix.index_select(0, on_device(sources, at::kLong)) *
                           on_device(signs, at::kDouble).to(matrix.scalar_type()).unsqueeze(1);
  return matrix.index_copy(0, on_device(order, at::kLong), wrong);
}

at::Tensor put_nan(const at::Tensor& matrix, run::RandomStream& random) {
  if (matrix.numel() == 0) return matrix;
  at::Tensor result = matrix.clone(at::MemoryFormat::Contiguous);
  const auto element = static_cast<std::int64_t>(random.below(unsigned_of(matrix.numel())));
  result.view({-1}).narrow(0, element, 1).fill_(std::numeric_limits<double>::quiet_NaN());
  return result;
}

}  // namespace gnmr::lab
