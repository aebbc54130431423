// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/injection/outlier_transplant.h"

#include <c10/core/GradMode.h>

#include <cmath>
#include <optional>
#include <string_view>

#include "gnmr/core/error.h"

namespace gnmr::lab {
namespace {

/// A tensor that has a part in it: the dimension of its channels, and how often the factor multiplies it.
struct TransplantedTensor {
  std::int64_t dimension = 0;
  int power = 0;
};

std::optional<TransplantedTensor> part_of(std::string_view name) {
  struct Optimized {
    std::string_view ending;
    int power;  // of a gradient, whose size is the other way round, or of its square
  };
  constexpr Optimized kOptimized[] = {{".exp_avg_sq", -2}, {".exp_avg", -1}, {".master", 1}};
  int power = 1;
  for (const Optimized& optimized : kOptimized) {
    if (!name.ends_with(optimized.ending)) continue;
    name.remove_suffix(optimized.ending.size());
    power = optimized.power;
    break;
  }
  if (name.ends_with(".up.weight") || name.ends_with(".up.bias")) return TransplantedTensor{.power = power};
  if (name.ends_with(".down.weight")) return TransplantedTensor{.dimension = 1, .power = -power};
  return std::nullopt;
}

}  // namespace

void transplant_outliers(std::span<const std::pair<std::string, at::Tensor>> tensors,
                         const OutlierTransplant& transplant) {
  const at::NoGradGuard no_gradients;
  bool found = false;
  for (const auto& [name, tensor] : tensors) {
    const std::optional<TransplantedTensor> part = part_of(name);
    if (!part) continue;
    found = true;
    const std::int64_t all = tensor.size(part->dimension);
    if (transplant.channels > all) {
      throw Error("[transplant] `" + name + "`: expected at least " + std::to_string(transplant.channels) +
                  " channels, got " + std::to_string(all));
    }
    for (std::int64_t channel = 0; channel < transplant.channels; ++channel) {
      const std::int64_t place = (2 * channel + 1) * all / (2 * transplant.channels);
      tensor.select(part->dimension, place).mul_(std::pow(transplant.factor, part->power));
    }
  }
  if (!found) throw Error("[transplant] the model has no layers named up and down");
}

}  // namespace gnmr::lab
