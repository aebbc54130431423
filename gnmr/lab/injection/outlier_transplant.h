// SPDX-License-Identifier: Apache-2.0
// Outliers, put into a SwiGLU that has none: some channels of `up` become larger and the columns of `down` that take
// them as much smaller, so that the model computes what it did while the input of `down` has outliers to quantize.
//
// The moments of AdamW go with the weights, as if these had always been so. Its steps do not: from then on a row of
// `up` learns as much slower, relative to its size, as a column of `down` learns faster.
//
// Goals: exact where the factor is a power of two. Non-goals: when (injection_experiment.h); other activations, which a
// factor does not pass through.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace gnmr::lab {

/// How many channels of each SwiGLU, evenly spread, become how many times as large.
struct OutlierTransplant {
  std::int64_t channels = 4;
  double factor = 64;
};

/// Changes the tensors in place: `*.up.weight`, `*.up.bias` and `*.down.weight`, and what an optimizer keeps of them
/// behind the same names: `.exp_avg`, `.exp_avg_sq`, `.master`. An `Error` where there is no `up`, or one with fewer
/// channels.
void transplant_outliers(std::span<const std::pair<std::string, at::Tensor>> tensors,
                         const OutlierTransplant& transplant);

}  // namespace gnmr::lab
