// SPDX-License-Identifier: Apache-2.0
// Torch's threads for work of layers that have none.
#pragma once

#include <ATen/Parallel.h>

#include <cstdint>

#include "gnmr/core/parallel_for.h"

namespace gnmr::nn {

/// At least `grain` pieces at a time.
inline ParallelFor on_torch_threads(std::int64_t grain) {
  return [grain](std::size_t count, const WorkPart& part) {
    at::parallel_for(0, static_cast<std::int64_t>(count), grain, [&](std::int64_t first, std::int64_t last) {
      part(static_cast<std::size_t>(first), static_cast<std::size_t>(last));
    });
  };
}

}  // namespace gnmr::nn
