// SPDX-License-Identifier: Apache-2.0
#include "gnmr/low/linear_paths.h"

#include "gnmr/recipes/host_cast.h"

namespace gnmr::low {

void LinearPaths::begin_step() {
  amax.begin_step();
  measured = {};
  saved_error = {};
  projected_weight = {};
}

void LinearPaths::end_step(const formats::Refresh& refresh) {
  if (recipe != nullptr) amax.end_step(*recipe, refresh);
}

StepClock clock_of(const LinearPaths& paths) { return paths.clock != nullptr ? *paths.clock : StepClock{}; }

std::uint64_t seed_of(const LinearPaths& paths, Product product, std::size_t purpose) {
  const StepClock clock = clock_of(paths);
  return recipes::cast_seed({clock.seed, clock.step, clock.micro_batch, paths.layer}, product, purpose);
}

ProbeSeeds probe_seeds(const LinearPaths& paths, Product product) {
  const StepClock clock = clock_of(paths);
  const std::uint32_t layer = product == Product::weight_gradient ? 0 : paths.layer;
  return {.signs = recipes::cast_seed({clock.seed, clock.step, /*micro_batch=*/0, layer}, product, 3),
          .rows = ~seed_of(paths, product, 3)};
}

}  // namespace gnmr::low
