// SPDX-License-Identifier: Apache-2.0
#include "gnmr/torch/linear_paths.h"

namespace gnmr::nn {

void LinearPaths::begin_step() {
  step_amax.fill(-1.0f);
  measured = {};
  saved_error = {};
}

void LinearPaths::end_step() {
  if (recipe == nullptr) return;
  for (std::size_t product = 0; product < kProductCount; ++product) {
    const auto operands = recipes::operands_of(static_cast<Product>(product));
    for (std::size_t place = 0; place < 2; ++place) {
      const auto& rule = recipe->rules[product][place];
      if (!rule || rule->grouping != recipes::Grouping::delayed) continue;
      const float amax = step_amax[static_cast<std::size_t>(operands[place])];
      if (amax >= 0) formats::observe_amax(rule->delayed_scaling(), amax, delayed[product][place]);
    }
  }
}

}  // namespace gnmr::nn
