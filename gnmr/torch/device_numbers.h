// SPDX-License-Identifier: Apache-2.0
// The numbers that layers measure on a CUDA device (gnmr/low/device_numbers.h), brought to the host.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "gnmr/low/device_numbers.h"
#include "gnmr/low/linear_paths.h"
#include "gnmr/torch/pinned_copies.h"

namespace gnmr::nn {

/// Everything that was measured in a step, on its way to the host.
class NumbersOnTheWay {
 public:
  NumbersOnTheWay(PinnedCopies copies, std::vector<std::size_t> cast_indices, std::size_t layers)
      : copies_(std::move(copies)), cast_indices_(std::move(cast_indices)), layers_(layers) {}

  /// Waits for it.
  low::HostNumbers wait();

  /// The same where the caller has brought the bytes of `DeviceNumbers::bytes` himself.
  low::HostNumbers wait(std::span<const std::byte> bytes);

 private:
  PinnedCopies
      copies_;  // all numbers unless the caller brings them, and what quantization did, if anything was quantized
  std::vector<std::size_t> cast_indices_;
  std::size_t layers_;
};

/// All numbers of the step so far; nothing waits.
NumbersOnTheWay send_numbers(const low::DeviceNumbers& numbers, const std::shared_ptr<PinnedPool>& pool);

/// The same, all but `DeviceNumbers::bytes`.
NumbersOnTheWay send_rest(const low::DeviceNumbers& numbers, const std::shared_ptr<PinnedPool>& pool);

/// Puts the largest magnitudes of all processes in the place of this one's.
void set_amaxes(low::DeviceNumbers& numbers, std::span<const float> amaxes);

/// Where the largest magnitude of a layer's operand is, one number; the layer has numbers.
at::Tensor amax_of(low::LinearPaths& paths, recipes::Operand operand);

}  // namespace gnmr::nn
