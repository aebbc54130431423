// SPDX-License-Identifier: Apache-2.0
// Sums of rows in groups and products with a few vectors, against their references.
#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>

#include "core/random_run.h"
#include "gnmr/kernels/thin_rows_reference.h"
#include "kernels/check.h"

namespace gnmr::kernels::testing {
namespace {

using gnmr::testing::Random;

struct Shape {
  std::uint64_t rows, columns;
};

/// A matrix on the host and on the device; `offset` elements lie before it.
struct Matrix {
  Matrix(Random& random, ElementType type, Shape shape, std::size_t offset, double scale)
      : host((shape.rows * shape.columns + offset) * bytes_of(type)) {
    for (std::size_t i = 0; i < host.size() / bytes_of(type); ++i) {
      store_element(host.data(), i, type, scale * random.normal());
    }
    device = std::make_unique<OnDevice<std::byte>>(host);
    on_host = {host.data() + offset * bytes_of(type), type, shape.rows, shape.columns};
    on_device = {device->data() + offset * bytes_of(type), type, shape.rows, shape.columns};
  }
  std::vector<std::byte> host;
  std::unique_ptr<OnDevice<std::byte>> device;
  ThinMatrix on_host, on_device;
};

constexpr std::size_t kMargin = 9;  // numbers behind the results that stay as they were

/// Where sums are further from the expected ones than their rounding, or something behind them was written.
std::string difference(const std::vector<float>& found, const ReferenceSums& expected) {
  const std::size_t count = expected.sums.size();
  for (std::size_t i = 0; i < count; ++i) {
    const double off = std::abs(static_cast<double>(found[i]) - expected.sums[i]);
    if (!(off <= 4e-6 * expected.magnitudes[i] + 1e-37)) return "number " + std::to_string(i);
  }
  for (std::size_t i = count; i < found.size(); ++i) {
    if (std::bit_cast<std::uint32_t>(found[i]) != 0xeeeeeeeeu) return "behind the end";
  }
  return "";
}

std::vector<float> random_vectors(Random& random, std::size_t count) {
  std::vector<float> vectors(count);
  for (float& value : vectors) value = static_cast<float>(random.normal());
  return vectors;
}

std::string check_groups(Matrix& matrix, std::uint64_t seed) {
  const std::size_t count = row_groups(matrix.on_host.rows) * matrix.on_host.columns;
  const OnDevice<float> sums(count + kMargin);
  const OnDevice<double> norm(1);
  const OnDevice<std::byte> workspace(group_rows_workspace_bytes(matrix.on_device));
  group_rows(matrix.on_device, seed, sums.data(), norm.data(), workspace.data(), nullptr);
  must(cudaDeviceSynchronize());
  const std::vector<float> found = sums.get();
  const std::vector<double> found_norm = norm.get();
  double expected = 0;
  const std::string trouble = difference(found, reference_group_rows(matrix.on_host, seed, &expected));
  if (!trouble.empty()) return "groups: " + trouble;
  if (!(std::abs(found_norm[0] - expected) <= 1e-6 * expected)) return "squared norm " + std::to_string(found_norm[0]);
  group_rows(matrix.on_device, seed, sums.data(), norm.data(), workspace.data(), nullptr);
  must(cudaDeviceSynchronize());
  if (!same_bits(sums.get(), found) || !same_bits(norm.get(), found_norm)) return "other bits the second time";
  group_rows(matrix.on_device, seed, sums.data(), nullptr, workspace.data(), nullptr);
  must(cudaDeviceSynchronize());
  return same_bits(sums.get(), found) ? "" : "other bits without the norm";
}

std::string check_products(Random& random, Matrix& matrix, std::uint32_t count) {
  const std::uint64_t rows = matrix.on_host.rows;
  const std::uint64_t columns = matrix.on_host.columns;
  const std::size_t offset = random.below(2);  // vectors that are not aligned
  const std::vector<float> thin = random_vectors(random, offset + count * std::max(rows, columns));
  const OnDevice<float> on_device(thin);
  const OnDevice<float> of_rows(count * rows + kMargin);
  multiply_thin(matrix.on_device, on_device.data() + offset, count, of_rows.data(), nullptr);
  const OnDevice<float> of_columns(count * columns + kMargin);
  const OnDevice<std::byte> workspace(multiply_transposed_workspace_bytes(matrix.on_device, count));
  multiply_transposed(matrix.on_device, on_device.data() + offset, count, of_columns.data(), workspace.data(), nullptr);
  must(cudaDeviceSynchronize());
  std::string trouble = difference(of_rows.get(), reference_multiply(matrix.on_host, thin.data() + offset, count));
  if (!trouble.empty()) return "product: " + trouble;
  trouble = difference(of_columns.get(), reference_multiply_transposed(matrix.on_host, thin.data() + offset, count));
  return trouble.empty() ? "" : "transposed product: " + trouble;
}

void check_shapes(Checks& checks) {
  Random random(31);
  constexpr Shape kShapes[] = {{0, 7},     {7, 0},     {1, 1},     {1, 1000}, {63, 8},   {64, 256},  {65, 257},
                               {130, 300}, {257, 129}, {600, 512}, {1, 4099}, {2000, 5}, {513, 2056}};
  for (const ElementType type : {ElementType::bfloat16, ElementType::float32}) {
    std::string trouble;
    for (const Shape& shape : kShapes) {
      for (const std::size_t offset : {0, 1, 8}) {
        if (checks.is_small() && random.chance(0.6)) continue;
        Matrix matrix(random, type, shape, offset, 1e-2);
        if (trouble.empty()) trouble = check_groups(matrix, random.next());
        for (std::uint32_t count = 1; count <= kMostThinVectors && trouble.empty(); ++count) {
          trouble = check_products(random, matrix, count);
        }
        if (!trouble.empty()) {
          trouble += ", " + std::to_string(shape.rows) + " x " + std::to_string(shape.columns) + ", offset " +
                     std::to_string(offset);
          break;
        }
      }
      if (!trouble.empty()) break;
    }
    checks.report(
        std::string("sums of rows and thin products, ") + (type == ElementType::bfloat16 ? "bfloat16" : "float32"),
        trouble);
  }
}

/// Squares that do not fit into float, and elements that are not finite.
void check_extremes(Checks& checks) {
  Random random(32);
  std::string trouble;
  for (const ElementType type : {ElementType::bfloat16, ElementType::float32}) {
    for (const double scale : {1e-30, 1e30}) {
      Matrix matrix(random, type, {100, 40}, 0, scale);
      if (trouble.empty()) trouble = check_groups(matrix, 5);
    }
    for (const double odd : {HUGE_VAL, -HUGE_VAL, std::nan("")}) {
      Matrix matrix(random, type, {100, 300}, 0, 1);
      store_element(matrix.host.data(), 7777, type, odd);
      matrix.device->put(matrix.host);
      const OnDevice<float> sums(64 * 300);
      const OnDevice<double> norm(1);
      const OnDevice<std::byte> workspace(group_rows_workspace_bytes(matrix.on_device));
      group_rows(matrix.on_device, 1, sums.data(), norm.data(), workspace.data(), nullptr);
      must(cudaDeviceSynchronize());
      if (std::isfinite(norm.get()[0])) trouble = "a norm that should not be finite";
    }
  }
  checks.report("sums of rows with extremes", trouble);
}

void check_large(Checks& checks) {
  if (checks.is_small()) return;
  Random random(33);
  Matrix matrix(random, ElementType::bfloat16, {1024, 5120}, 0, 1e-3);
  std::string trouble = check_groups(matrix, 99);
  if (trouble.empty()) trouble = check_products(random, matrix, 4);
  checks.report("sums of rows and thin products of a large matrix", trouble);
}

}  // namespace

void check_thin_rows(Checks& checks) {
  check_shapes(checks);
  check_extremes(checks);
  check_large(checks);
}

}  // namespace gnmr::kernels::testing
