// SPDX-License-Identifier: Apache-2.0
#include "gnmr/kernels/norms_reference.h"

#include <algorithm>
#include <cmath>

namespace gnmr::kernels {

std::vector<double> reference_sums(std::span<const Slice> slices, std::uint32_t units) {
  std::vector<double> sums(units, 0.0);
  for (const Slice& slice : slices) {
    for (std::size_t i = 0; i < slice.count; ++i) {
      const double value = load_element(slice.data, i, slice.type);
      sums[slice.unit] += value * value;
    }
  }
  return sums;
}

Gate reference_gate(std::span<const double> sums, double max_norm) {
  double total = 0;
  for (const double sum : sums) total += sum;
  const double norm = std::sqrt(total);
  if (!std::isfinite(norm)) return {.total_norm = norm, .coefficient = 0, .apply = 0};
  const auto coefficient = static_cast<float>(std::min(max_norm / (norm + 1e-6), 1.0));
  return {.total_norm = norm, .coefficient = coefficient, .apply = norm * coefficient < kLargestNorm ? 1u : 0u};
}

}  // namespace gnmr::kernels
