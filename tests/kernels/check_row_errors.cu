// SPDX-License-Identifier: Apache-2.0
// Errors of rows, in full and from samples, products with signs, and squares, against their references.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>

#include "core/random_run.h"
#include "gnmr/kernels/add_square.h"
#include "gnmr/kernels/row_errors_reference.h"
#include "kernels/check.h"

namespace gnmr::kernels::testing {
namespace {

using gnmr::testing::Random;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr ElementType kTypes[] = {ElementType::bfloat16, ElementType::float32};

struct Shape {
  std::uint64_t rows, columns;
};

/// A matrix on the host and on the device; `offset` elements lie before it.
class Matrix {
 public:
  Matrix(ElementType type, Shape shape, std::size_t offset = 0)
      : host_((shape.rows * shape.columns + offset + 1) * bytes_of(type)),
        type_(type),
        shape_(shape),
        offset_(offset) {}

  Matrix(Random& random, ElementType type, Shape shape, std::size_t offset, double scale)
      : Matrix(type, shape, offset) {
    for (std::uint64_t i = 0; i < shape.rows * shape.columns; ++i) set(i, scale * random.normal());
  }

  void set(std::uint64_t index, double value) {
    store_element(host_.data(), offset_ + index, type_, value);
    device_.reset();
  }
  double get(std::uint64_t index) const { return load_element(host_.data(), offset_ + index, type_); }
  RowsView on_host() const { return view(host_.data()); }
  RowsView on_device() {
    if (device_ == nullptr) device_ = std::make_unique<OnDevice<std::byte>>(host_);
    return view(device_->data());
  }

 private:
  RowsView view(const std::byte* data) const {
    return {data + offset_ * bytes_of(type_), type_, shape_.rows, shape_.columns};
  }

  std::vector<std::byte> host_;
  ElementType type_;
  Shape shape_;
  std::size_t offset_;
  std::unique_ptr<OnDevice<std::byte>> device_;
};

std::string text(Shape shape) { return std::to_string(shape.rows) + " x " + std::to_string(shape.columns); }

bool is_near(double found, double expected, double tolerance) {
  return found == expected || std::abs(found - expected) <= tolerance * std::abs(expected);
}

std::string difference(const ErrorTotals& found, const ErrorTotals& expected, double tolerance) {
  if (found.measured != expected.measured) return "measured " + std::to_string(found.measured);
  if (found.reference != expected.reference) return "rows " + std::to_string(found.reference);
  return is_near(found.difference, expected.difference, tolerance)
             ? ""
             : "difference " + std::to_string(found.difference) + " for " + std::to_string(expected.difference);
}

/// What a call makes of totals that have something in them already, twice; its ticket must be 0 again.
template <class Add>
std::string check_totals(const ErrorTotals& before, const ErrorTotals& expected, double tolerance, const Add& add) {
  const OnDevice<unsigned> ticket(std::vector<unsigned>{0});
  std::vector<ErrorTotals> found;
  for (int run = 0; run < 2; ++run) {
    OnDevice<ErrorTotals> of_run(std::vector<ErrorTotals>{before});
    add(TotalsPlace{of_run.data(), ticket.data()});
    must(cudaDeviceSynchronize());
    if (ticket.get()[0] != 0) return "a ticket that is not 0";
    if (run == 1 && !same_bits(of_run.get(), found)) return "other bits the second time";
    found = of_run.get();
  }
  return difference(found[0], expected, tolerance);
}

constexpr ErrorTotals kBefore{.difference = 0.5, .reference = 2, .measured = 3};

/// What a sample comes to when it is judged, beside slots in which nothing waits, twice.
template <class Add>
std::string check_judged(const ErrorTotals& expected, double tolerance, const Add& add) {
  const OnDevice<SampleSlot> slots(std::vector<SampleSlot>(3));
  std::vector<ErrorTotals> found;
  for (int run = 0; run < 2; ++run) {
    OnDevice<ErrorTotals> of_run(std::vector<ErrorTotals>{kBefore});
    add(SamplePlace{slots.data() + 1, of_run.data()});
    judge_samples(slots.data(), 3, nullptr);
    judge_samples(slots.data(), 3, nullptr);  // nothing waits any more
    must(cudaDeviceSynchronize());
    for (const SampleSlot& slot : slots.get()) {
      if (slot.count != 0) return "a sample that still waits";
      for (const std::uint32_t ticket : slot.tickets) {
        if (ticket != 0) return "a ticket that is not 0";
      }
    }
    if (run == 1 && !same_bits(of_run.get(), found)) return "other bits the second time";
    found = of_run.get();
  }
  return difference(found[0], expected, tolerance);
}

// In full.

/// Two results that differ a little, some rows a lot, some not at all.
struct Pair {
  Pair(Random& random, ElementType low_type, ElementType high_type, Shape of, double scale, std::size_t offset = 0)
      : shape(of), low(low_type, of, offset), high(high_type, of, offset) {
    for (std::uint64_t row = 0; row < of.rows; ++row) {
      const double size = scale * std::exp(2 * random.normal());
      const double off = row % 17 == 3 ? 60 : row % 5 == 1 ? 0 : 0.05;
      for (std::uint64_t i = row * of.columns; i < (row + 1) * of.columns; ++i) {
        high.set(i, row % 13 == 7 ? 0 : size * random.normal());
        low.set(i, high.get(i) + off * size * random.normal());
      }
    }
  }
  Shape shape;
  Matrix low, high;
};

std::string check_pair(Pair& pair) {
  ErrorTotals expected = kBefore;
  reference_add_error(pair.low.on_host(), pair.high.on_host(), expected);
  const OnDevice<std::byte> workspace(add_error_workspace_bytes(pair.shape.rows));
  const RowsView low = pair.low.on_device();
  const RowsView high = pair.high.on_device();
  const std::string trouble = check_totals(kBefore, expected, 1e-9, [&](const TotalsPlace& place) {
    add_error(low, high, place, workspace.data(), nullptr);
  });
  if (!trouble.empty()) return "error: " + trouble;
  double expected_sum = 0.25;
  const std::uint64_t count = pair.shape.rows * pair.shape.columns;
  for (std::uint64_t i = 0; i < count; ++i) expected_sum += pair.high.get(i) * pair.high.get(i);
  const OnDevice<double> sum(std::vector<double>{0.25});
  const OnDevice<std::byte> space(add_square_workspace_bytes(count));
  add_square(high, sum.data(), space.data(), nullptr);
  must(cudaDeviceSynchronize());
  const double found_sum = sum.get()[0];
  if (std::isfinite(expected_sum) != std::isfinite(found_sum)) return "a square that is finite, or not";
  const bool good = !std::isfinite(expected_sum) || is_near(found_sum, expected_sum, 1e-6);
  return good ? "" : "square " + std::to_string(found_sum);
}

void check_full(Checks& checks) {
  Random random(61);
  std::string trouble;
  constexpr Shape kShapes[] = {{1, 1}, {1, 1000}, {7, 8}, {255, 33}, {256, 64}, {257, 129}, {1000, 40}, {3000, 257}};
  for (const ElementType low : kTypes) {
    for (const ElementType high : kTypes) {
      for (const Shape& shape : kShapes) {
        for (const std::size_t offset : {0, 1}) {
          if (!trouble.empty() || (checks.is_small() && shape.rows > 300)) continue;
          Pair pair(random, low, high, shape, 1e-2, offset);
          trouble = check_pair(pair);
          if (!trouble.empty()) trouble += " of " + text(shape);
        }
      }
    }
  }
  checks.report("errors by rows and squares, all types and shapes", trouble);
}

/// Squares that do not fit into float, equal results, results of zeros, and elements that are not finite.
void check_odd(Checks& checks) {
  Random random(62);
  std::string trouble;
  constexpr Shape kShape{300, 50};
  const auto check = [&](Pair& pair) {
    if (trouble.empty()) trouble = check_pair(pair);
  };
  for (const ElementType type : kTypes) {
    for (const double scale : {1e-30, 1e30, 0.0}) {
      Pair pair(random, type, type, kShape, scale);
      check(pair);
    }
    Pair zero(random, type, type, kShape, 0);
    zero.low.set(77, 1);
    check(zero);
    for (const double odd : {kInfinity, -kInfinity, std::nan("")}) {
      Pair pair(random, type, type, kShape, 1);
      pair.high.set(random.below(15000), odd);
      check(pair);
      pair.low.set(random.below(15000), odd);
      check(pair);
      Pair lost(random, type, type, {2, 3}, 1);
      for (const std::uint64_t i : {0, 5}) lost.high.set(i, odd);
      check(lost);
    }
  }
  checks.report("errors of odd results", trouble);
}

// Products with signs.

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

std::string check_signs(Random& random, ElementType type, Shape shape, std::size_t offset, std::uint64_t vectors) {
  Matrix matrix(random, type, shape, offset, 1e-2);
  const std::uint64_t by_columns = random.next();
  const std::uint64_t by_rows = random.next();
  const ReferenceSums of_rows = reference_multiply_signs(matrix.on_host(), by_columns, false, vectors);
  const ReferenceSums of_columns = reference_multiply_signs(matrix.on_host(), by_rows, true, vectors);
  const OnDevice<std::byte> workspace(multiply_signs_workspace_bytes(matrix.on_host(), vectors));
  std::vector<std::vector<float>> both;
  for (const int wanted : {3, 1, 2}) {
    if (vectors != kSignVectors && wanted != 1) continue;
    const OnDevice<float> rows(of_rows.sums.size() + kMargin);
    const OnDevice<float> columns(of_columns.sums.size() + kMargin);
    const SignProducts products{vectors, by_columns, (wanted & 1) != 0 ? rows.data() : nullptr, by_rows,
                                (wanted & 2) != 0 ? columns.data() : nullptr};
    multiply_signs(matrix.on_device(), products, workspace.data(), nullptr);
    must(cudaDeviceSynchronize());
    if (wanted == 3) both = {rows.get(), columns.get()};
    std::string trouble;
    if ((wanted & 1) != 0) trouble = difference(rows.get(), of_rows);
    if (!trouble.empty()) return "of rows: " + trouble;
    if ((wanted & 2) != 0) trouble = difference(columns.get(), of_columns);
    if (!trouble.empty()) return "of columns: " + trouble;
    if (both.empty()) continue;
    if ((wanted & 1) != 0 && !same_bits(rows.get(), both[0])) return "other bits of rows alone";
    if ((wanted & 2) != 0 && !same_bits(columns.get(), both[1])) return "other bits of columns alone";
  }
  return "";
}

void check_products(Checks& checks) {
  Random random(31);
  constexpr Shape kShapes[] = {{0, 7},     {7, 0},     {1, 1},     {1, 1000}, {63, 8},   {64, 256},  {65, 257},
                               {130, 300}, {257, 129}, {600, 512}, {1, 4099}, {2000, 5}, {513, 2056}};
  for (const ElementType type : kTypes) {
    std::string trouble;
    for (const Shape& shape : kShapes) {
      for (const std::size_t offset : {0, 1, 8}) {
        if (!trouble.empty() || (checks.is_small() && random.chance(0.6))) continue;
        for (const std::uint64_t vectors : {kSignVectors, kOutputSignVectors}) {
          if (trouble.empty()) trouble = check_signs(random, type, shape, offset, vectors);
        }
        if (!trouble.empty()) trouble += ", " + text(shape) + ", offset " + std::to_string(offset);
      }
    }
    checks.report(std::string("products with signs, ") + (type == ElementType::bfloat16 ? "bfloat16" : "float32"),
                  trouble);
  }
}

// Samples.

/// What goes wrong in a low result.
enum class Fault { none, rows_that_are_off, not_finite, zero, high_not_finite };

/// left [rows, m] x right [m, n] with a low result beside it; by `outputs` as the gradient of a weight.
std::string check_sample(Random& random, ElementType low_type, ElementType type, std::uint64_t rows, std::uint64_t m,
                         std::uint64_t n, Fault fault, bool outputs) {
  const std::size_t offset = random.below(2);
  Matrix left(random, type, outputs ? Shape{m, rows} : Shape{rows, m}, offset, 1);
  Matrix low(low_type, {rows, n}, offset);
  const std::uint64_t signs_seed = random.next();
  const std::uint64_t sample_seed = random.next();
  std::vector<double> right(m * n);
  for (double& value : right) value = 0.1 * random.normal();
  const auto left_at = [&](std::uint64_t row, std::uint64_t i) {
    return left.get(outputs ? i * rows + row : row * m + i);
  };
  for (std::uint64_t row = 0; row < rows; ++row) {
    const double factor = fault == Fault::rows_that_are_off && row % 3 == 1 ? 60 : fault == Fault::zero ? 0 : 1;
    for (std::uint64_t column = 0; column < n; ++column) {
      double sum = 0;
      for (std::uint64_t i = 0; i < m; ++i) sum += left_at(row, i) * right[i * n + column];
      low.set(row * n + column, factor * (sum + 0.05 * random.normal()));
    }
  }
  // Enough of them that some are sampled.
  for (std::uint64_t row = 0; row < rows; row += 2) {
    if (fault == Fault::not_finite) low.set(row * n + random.below(n), row % 4 == 0 ? kInfinity : std::nan(""));
    if (fault == Fault::high_not_finite) left.set(outputs ? row : row * m, std::nan(""));
  }
  const std::uint64_t vectors = outputs ? kOutputSignVectors : kSignVectors;
  std::vector<float> right_signs(vectors * m);
  for (std::uint64_t k = 0; k < vectors; ++k) {
    for (std::uint64_t i = 0; i < m; ++i) {
      double sum = 0;
      for (std::uint64_t column = 0; column < n; ++column) {
        sum += is_plus(signs_seed, vectors * column + k) ? right[i * n + column] : -right[i * n + column];
      }
      right_signs[k * m + i] = static_cast<float>(sum);
    }
  }
  const OnDevice<float> on_device(right_signs);
  ErrorTotals expected = kBefore;
  // Differences of projections are rounded in float32, which shows where they are small.
  constexpr double kTolerance = 1e-3;
  if (outputs) {
    reference_add_sampled_outputs({low.on_host(), left.on_host(), right_signs.data(), signs_seed, sample_seed},
                                  expected);
    const OnDevice<std::byte> workspace(sampled_outputs_workspace_bytes(m));
    const SampledOutputs sampled{low.on_device(), left.on_device(), on_device.data(), signs_seed, sample_seed};
    return check_judged(expected, kTolerance, [&](const SamplePlace& place) {
      add_sampled_outputs(sampled, place, workspace.data(), nullptr);
    });
  }
  reference_add_sampled_rows({low.on_host(), left.on_host(), right_signs.data(), signs_seed, sample_seed}, expected);
  const SampledRows sampled{low.on_device(), left.on_device(), on_device.data(), signs_seed, sample_seed};
  return check_judged(expected, kTolerance,
                      [&](const SamplePlace& place) { add_sampled_rows(sampled, place, nullptr); });
}

/// Shapes as real layers have them: aligned rows of several rounds, tokens of several blocks, a last run that is cut.
void check_large_samples(Checks& checks) {
  struct Large {
    std::uint64_t rows, m, n;
    bool outputs;
  };
  constexpr Large kLarge[] = {{300, 8200, 64, false},
                              {264, 64, 8200, false},
                              {1000, 2048, 64, true},
                              {1001, 1537, 40, true},
                              {264, 100, 8200, true}};
  Random random(64);
  std::string trouble;
  for (const Large& large : kLarge) {
    for (const ElementType type : kTypes) {
      for (const Fault fault : {Fault::none, Fault::rows_that_are_off, Fault::high_not_finite}) {
        if (!trouble.empty() || checks.is_small()) continue;
        trouble = check_sample(random, type, type, large.rows, large.m, large.n, fault, large.outputs);
        if (!trouble.empty()) trouble += ", " + text({large.rows, large.n}) + " by " + std::to_string(large.m);
      }
    }
  }
  checks.report("errors of large samples", trouble);
}

void check_samples(Checks& checks) {
  Random random(63);
  for (const bool outputs : {false, true}) {
    std::string trouble;
    for (const ElementType low : kTypes) {
      for (const ElementType type : kTypes) {
        for (const std::uint64_t rows : {1, 5, 100, 255, 256, 257, 1000, 4111}) {
          if (checks.is_small() && rows > 300) continue;
          for (const Fault fault :
               {Fault::none, Fault::rows_that_are_off, Fault::not_finite, Fault::zero, Fault::high_not_finite}) {
            if (!trouble.empty()) break;
            const std::uint64_t m = 1 + random.below(150);
            const std::uint64_t n = 1 + random.below(300);
            trouble = check_sample(random, low, type, rows, m, n, fault, outputs);
            if (!trouble.empty()) {
              trouble += ", " + text({rows, n}) + " by " + std::to_string(m) + ", fault " +
                         std::to_string(static_cast<int>(fault));
            }
          }
        }
      }
    }
    checks.report(outputs ? "errors of sampled outputs" : "errors of sampled rows", trouble);
  }
}

}  // namespace

void check_row_errors(Checks& checks) {
  check_full(checks);
  check_odd(checks);
  check_products(checks);
  check_samples(checks);
  check_large_samples(checks);
}

}  // namespace gnmr::kernels::testing
