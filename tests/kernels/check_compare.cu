// SPDX-License-Identifier: Apache-2.0
// Errors of a low result, squared norms, projections and random signs, against their references.
#include <bit>
#include <cmath>
#include <limits>

#include "core/random_run.h"
#include "gnmr/kernels/compare_reference.h"
#include "kernels/check.h"

namespace gnmr::kernels::testing {
namespace {

using gnmr::testing::Random;

constexpr ElementType kTypes[] = {ElementType::bfloat16, ElementType::float32};
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// An array on the host and on the device; `offset` elements lie before it, and NaN around it.
struct Array {
  Array(ElementType element_type, std::uint64_t elements, std::size_t before)
      : type(element_type), offset(before), host((elements + before + 16) * bytes_of(type), std::byte{0xff}) {}

  void set(std::uint64_t index, double value) { store_element(host.data(), offset + index, type, value); }
  ResultView on_host() const { return {host.data() + offset * bytes_of(type), type}; }
  ResultView on(const OnDevice<std::byte>& device) const { return {device.data() + offset * bytes_of(type), type}; }

  ElementType type;
  std::size_t offset;
  std::vector<std::byte> host;
};

/// A high result, and a low one that is off by a few percent.
struct Pair {
  Pair(Random& random, ElementType low_type, ElementType high_type, std::uint64_t elements, double scale)
      : count(elements),
        low(low_type, elements, random.pick<std::size_t>({0, 0, 1, 4, 8})),
        high(high_type, elements, random.pick<std::size_t>({0, 0, 1, 4, 8})) {
    for (std::uint64_t i = 0; i < elements; ++i) {
      const double value = scale * random.normal();
      high.set(i, value);
      low.set(i, value * (1 + 0.05 * random.normal()));
    }
  }
  std::uint64_t count;
  Array low, high;
};

bool is_near(double found, double expected) {
  return found == expected || std::abs(found - expected) <= 1e-6 * std::abs(expected);
}

std::string difference(const ErrorTotals& found, const ErrorTotals& expected) {
  if (found.measured != expected.measured) return "measured " + std::to_string(found.measured);
  if (!is_near(found.difference, expected.difference)) return "difference " + std::to_string(found.difference);
  return is_near(found.reference, expected.reference) ? "" : "reference " + std::to_string(found.reference);
}

/// What `add_error` makes of totals that have something in them already.
std::string check_pair(const Pair& pair) {
  const ErrorTotals before{.difference = 0.5, .reference = 2, .measured = 3};
  const OnDevice<std::byte> low(pair.low.host);
  const OnDevice<std::byte> high(pair.high.host);
  const OnDevice<std::byte> workspace(compare_workspace_bytes(pair.count));
  OnDevice<ErrorTotals> totals(std::vector<ErrorTotals>{before});
  const auto found_of = [&] {
    totals.put({before});
    add_error(pair.low.on(low), pair.high.on(high), pair.count, totals.data(), workspace.data(), nullptr);
    must(cudaDeviceSynchronize());
    return totals.get();
  };
  ErrorTotals expected = before;
  reference_add_error(pair.low.on_host(), pair.high.on_host(), pair.count, expected);
  const std::vector<ErrorTotals> found = found_of();
  const std::string trouble = difference(found[0], expected);
  if (!trouble.empty()) return trouble;
  if (!same_bits(found_of(), found)) return "other bits the second time";

  double expected_sum = 0.25;
  reference_add_square(pair.high.on_host(), pair.count, expected_sum);
  const OnDevice<double> sum(std::vector<double>{0.25});
  add_square(pair.high.on(high), pair.count, sum.data(), workspace.data(), nullptr);
  must(cudaDeviceSynchronize());
  const double found_sum = sum.get()[0];
  if (std::isfinite(expected_sum) != std::isfinite(found_sum)) return "a square that is finite, or not";
  return !std::isfinite(expected_sum) || is_near(found_sum, expected_sum) ? "" : "square " + std::to_string(found_sum);
}

void check_sizes(Checks& checks) {
  Random random(61);
  std::string trouble;
  for (const ElementType low : kTypes) {
    for (const ElementType high : kTypes) {
      for (const std::uint64_t count : {0, 1, 7, 8, 255, 8191, 8192, 8193, 16384, 16385, 40000, 300'001}) {
        if (!trouble.empty() || (checks.is_small() && count > 20000)) continue;
        trouble = check_pair(Pair(random, low, high, count, 1e-2));
        if (!trouble.empty()) trouble += " of " + std::to_string(count) + " elements";
      }
    }
  }
  checks.report("errors and squares, all types and sizes", trouble);
}

/// Squares that do not fit into float, equal results, and elements that are not finite.
void check_odd(Checks& checks) {
  Random random(62);
  std::string trouble;
  for (const ElementType type : kTypes) {
    for (const double scale : {1e-30, 1e30, 0.0}) {
      if (trouble.empty()) trouble = check_pair(Pair(random, type, type, 20000, scale));
    }
    for (const double odd : {kInfinity, -kInfinity, std::nan("")}) {
      Pair pair(random, type, type, 20000, 1);
      pair.low.set(random.below(20000), odd);
      if (trouble.empty()) trouble = check_pair(pair);
      pair.high.set(random.below(20000), odd);
      if (trouble.empty()) trouble = check_pair(pair);
    }
    Pair far(random, type, type, 3000, 1);
    far.low.set(77, 3e38);
    far.high.set(77, -3e38);
    if (trouble.empty()) trouble = check_pair(far);
  }
  checks.report("errors of odd results", trouble);
}

std::string check_projection(double size, const std::vector<float>& low, const std::vector<float>& high,
                             std::uint32_t vectors) {
  const ErrorTotals before{.difference = 0.5, .reference = 2, .measured = 3};
  ErrorTotals expected = before;
  reference_add_projections(size, low.data(), high.data(), low.size(), vectors, expected);
  const OnDevice<double> device_size(std::vector<double>{size});
  const OnDevice<float> device_low(low);
  const OnDevice<float> device_high(high);
  const OnDevice<ErrorTotals> totals(std::vector<ErrorTotals>{before});
  add_projections(device_size.data(), device_low.data(), device_high.data(), low.size(), vectors, totals.data(),
                  nullptr);
  must(cudaDeviceSynchronize());
  return difference(totals.get()[0], expected);
}

void check_projections(Checks& checks) {
  Random random(63);
  std::string trouble;
  for (const std::size_t count : {0, 1, 4, 256, 511, 513, 27648}) {
    std::vector<float> low(count);
    std::vector<float> high(count);
    for (std::size_t i = 0; i < count; ++i) {
      high[i] = static_cast<float>(random.normal());
      low[i] = high[i] + static_cast<float>(0.1 * random.normal());
    }
    for (const double size : {0.0, 3.5, kInfinity, std::nan("")}) {
      if (trouble.empty()) trouble = check_projection(size, low, high, 4);
    }
    if (trouble.empty()) trouble = check_projection(2, std::vector<float>(count), high, 2);
    if (count == 0) continue;
    for (const float odd : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
      low[random.below(count)] = odd;
      if (trouble.empty()) trouble = check_projection(1, low, high, 2);
      high[random.below(count)] = odd;
      if (trouble.empty()) trouble = check_projection(1, low, high, 2);
    }
  }
  checks.report("errors from projections", trouble);
}

void check_signs(Checks& checks) {
  bool good = true;
  for (const SignLayout layout : {SignLayout::by_rows, SignLayout::by_columns}) {
    for (const std::uint64_t rows : {0, 1, 3, 64, 1000, 5121}) {
      for (const std::uint64_t columns : {1, 2, 3, 4, 70}) {
        std::vector<float> expected = reference_signs(rows, columns, 0x123456789abcdefu + rows, layout);
        const OnDevice<float> signs(rows * columns + 5);
        random_signs(rows, columns, 0x123456789abcdefu + rows, layout, signs.data(), nullptr);
        must(cudaDeviceSynchronize());
        expected.insert(expected.end(), 5, std::bit_cast<float>(0xeeeeeeeeu));
        good = good && same_bits(signs.get(), expected);
      }
    }
  }
  checks.expect("random signs", good);
}

}  // namespace

void check_compare(Checks& checks) {
  check_sizes(checks);
  check_odd(checks);
  check_projections(checks);
  check_signs(checks);
}

}  // namespace gnmr::kernels::testing
