// SPDX-License-Identifier: Apache-2.0
#include "gnmr/kernels/row_errors_reference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <span>
#include <string>

#include "gnmr/core/error.h"

namespace gnmr::kernels {
namespace {

std::uint64_t word_of(std::uint64_t seed, std::uint64_t index) {
  std::uint64_t bits = seed + (index + 1) * 0x9e3779b97f4a7c15u;
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9u;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebu;
  return bits ^ (bits >> 31);
}

/// A number with 20 bits of its mantissa: medians are chosen among these, so that a device needs no more than 32 bits.
std::uint32_t key_of(double value) { return static_cast<std::uint32_t>(std::bit_cast<std::uint64_t>(value) >> 32); }
double value_of(std::uint32_t key) { return std::bit_cast<double>(static_cast<std::uint64_t>(key) << 32); }

/// The lower median of numbers from 0 on; 0 of none.
double median(std::vector<std::uint32_t>& keys) {
  if (keys.empty()) return 0;
  const auto middle = keys.begin() + static_cast<std::ptrdiff_t>((keys.size() - 1) / 2);
  std::nth_element(keys.begin(), middle, keys.end());
  return value_of(*middle);
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kOwnFactor = 16;  // further from the others a row's factor is its own

double element(const RowsView& matrix, std::uint64_t row, std::uint64_t column) {
  return load_element(matrix.data, row * matrix.columns + column, matrix.type);
}

/// The sign for a row or column in vector `k` of so many.
double sign_of(std::uint64_t seed, std::uint64_t vectors, std::uint64_t index, std::uint64_t k) {
  return is_plus(seed, vectors * index + k) ? 1 : -1;
}

/// A sampled row from its projections.
ProjectedRow projected(const RowsView& low, std::uint64_t row, std::uint64_t seed, std::span<const double> high) {
  const std::uint64_t vectors = high.size();
  ProjectedRow result{};
  std::vector<double> projections(vectors);
  for (std::uint64_t column = 0; column < low.columns; ++column) {
    const double value = element(low, row, column);
    result.size += value * value;
    for (std::uint64_t k = 0; k < vectors; ++k) projections[k] += value * sign_of(seed, vectors, column, k);
  }
  const double share = 1.0 / static_cast<double>(vectors);
  for (std::uint64_t k = 0; k < vectors; ++k) {
    const double apart = projections[k] - high[k];
    result.low += share * projections[k] * projections[k];
    result.high += share * high[k] * high[k];
    result.difference += share * apart * apart;
  }
  return result;
}

}  // namespace

bool is_plus(std::uint64_t seed, std::uint64_t index) { return (word_of(seed, index / 64) >> (index % 64) & 1u) != 0; }

std::uint64_t RowSample::row(std::uint64_t index) const {
  if (rows <= kSampledRows) return index;
  const std::uint64_t parts = kSampledRows / run;
  const std::uint64_t runs = (rows + run - 1) / run;
  const std::uint64_t part = index / run;
  const std::uint64_t first = part * runs / parts;
  const std::uint64_t size = (part + 1) * runs / parts - first;
  return (first + ((word_of(seed, part) >> 32) * size >> 32)) * run + index % run;
}

void add_rows(std::span<const ComparedRow> rows, ErrorTotals& totals) {
  std::vector<std::uint32_t> references;
  bool known = false;
  bool finite = true;
  for (const ComparedRow& row : rows) {
    if (!std::isfinite(row.reference)) continue;
    known = true;
    finite = finite && std::isfinite(row.difference);
    if (row.reference > 0) references.push_back(key_of(row.reference));
  }
  if (!known) return;
  const bool has_reference = !references.empty();
  const double floor = median(references);
  double difference = 0;
  double count = 0;
  for (const ComparedRow& row : rows) {
    if (!std::isfinite(row.reference) || !(row.reference > 0 || row.difference > 0)) continue;
    count += 1;
    // Also where nothing high differs from 0.
    if (row.difference > 0) {
      difference += has_reference ? std::min(row.difference / std::max(row.reference, floor), kMostOfRow) : kInfinity;
    }
  }
  totals.difference += finite ? difference : kInfinity;
  totals.reference += count;
  totals.measured += 1;
}

void add_rows(std::span<const ProjectedRow> rows, ErrorTotals& totals) {
  const auto has_factor = [](const ProjectedRow& row) {
    return std::isfinite(row.size) && std::isfinite(row.high) && row.low > 0;
  };
  std::vector<std::uint32_t> factors;
  for (const ProjectedRow& row : rows) {
    if (has_factor(row)) factors.push_back(key_of(row.high / row.low));
  }
  const double usual = median(factors);
  std::vector<ComparedRow> compared;
  for (const ProjectedRow& row : rows) {
    double reference = row.high;
    if (has_factor(row)) {
      const double own = row.high / row.low;
      reference = row.size * (own > usual * kOwnFactor || own * kOwnFactor < usual ? own : usual);
    }
    compared.push_back({std::isfinite(row.size) ? row.difference : kInfinity, reference});
  }
  add_rows(compared, totals);
}

void check_rows(const RowsView& view) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 24;
  if (view.type != ElementType::float32 && view.type != ElementType::bfloat16) {
    throw Error("[row_errors] expected float32 or bfloat16 elements");
  }
  if (view.rows >= kMost || view.columns >= kMost) {
    throw Error("[row_errors] expected less than 2^24 rows and columns, got " + std::to_string(view.rows) + " x " +
                std::to_string(view.columns));
  }
  if (view.rows * view.columns == 0) return;
  if (view.data == nullptr) throw Error("[row_errors] expected an address of elements, got none");
  if (reinterpret_cast<std::uintptr_t>(view.data) % bytes_of(view.type) != 0) {
    throw Error("[row_errors] expected elements at their alignment");
  }
}

void reference_add_error(const RowsView& low, const RowsView& high, ErrorTotals& totals) {
  std::vector<ComparedRow> rows(low.rows);
  for (std::uint64_t row = 0; row < low.rows; ++row) {
    for (std::uint64_t column = 0; column < low.columns; ++column) {
      const double of_high = element(high, row, column);
      const auto difference =
          static_cast<double>(static_cast<float>(element(low, row, column)) - static_cast<float>(of_high));
      rows[row].difference += difference * difference;
      rows[row].reference += of_high * of_high;
    }
  }
  add_rows(rows, totals);
}

ReferenceSums reference_multiply_signs(const RowsView& matrix, std::uint64_t seed, bool is_transposed,
                                       std::uint64_t vectors) {
  const std::uint64_t results = is_transposed ? matrix.columns : matrix.rows;
  const std::uint64_t summed = is_transposed ? matrix.rows : matrix.columns;
  ReferenceSums sums{std::vector<double>(vectors * results), std::vector<double>(vectors * results)};
  for (std::uint64_t k = 0; k < vectors; ++k) {
    for (std::uint64_t at = 0; at < results; ++at) {
      for (std::uint64_t i = 0; i < summed; ++i) {
        const double value = is_transposed ? element(matrix, i, at) : element(matrix, at, i);
        sums.sums[k * results + at] += value * sign_of(seed, vectors, i, k);
        sums.magnitudes[k * results + at] += std::abs(value);
      }
    }
  }
  return sums;
}

void reference_add_sampled_rows(const SampledRows& rows, ErrorTotals& totals) {
  const RowSample sample{rows.sample_seed, rows.low.rows, kRunOfTokens};
  std::vector<ProjectedRow> found;
  for (std::uint64_t index = 0; index < sample.count(); ++index) {
    const std::uint64_t row = sample.row(index);
    std::vector<double> high(kSignVectors);
    for (std::uint64_t k = 0; k < kSignVectors; ++k) {
      for (std::uint64_t i = 0; i < rows.left.columns; ++i) {
        high[k] += element(rows.left, row, i) * static_cast<double>(rows.right_signs[k * rows.left.columns + i]);
      }
    }
    found.push_back(projected(rows.low, row, rows.signs_seed, high));
  }
  add_rows(found, totals);
}

void reference_add_sampled_outputs(const SampledOutputs& outputs, ErrorTotals& totals) {
  const RowSample sample{outputs.sample_seed, outputs.low.rows, kRunOfOutputs};
  const std::uint64_t tokens = outputs.gradient.rows;
  std::vector<ProjectedRow> found;
  for (std::uint64_t index = 0; index < sample.count(); ++index) {
    const std::uint64_t row = sample.row(index);
    if (row >= outputs.low.rows) continue;
    std::vector<double> high(kOutputSignVectors);
    for (std::uint64_t k = 0; k < kOutputSignVectors; ++k) {
      for (std::uint64_t token = 0; token < tokens; ++token) {
        high[k] += element(outputs.gradient, token, row) * static_cast<double>(outputs.input_signs[k * tokens + token]);
      }
    }
    found.push_back(projected(outputs.low, row, outputs.signs_seed, high));
  }
  add_rows(found, totals);
}

}  // namespace gnmr::kernels
