// SPDX-License-Identifier: Apache-2.0
// Numbers on their way from a CUDA device to the host.
//
// Goals: taking them waits for nothing; reading them waits for just what made them, not for what was queued since.
// Non-goals: large tensors.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <memory>
#include <vector>

namespace gnmr::nn {

/// Copies of tensors of one device, as they are when its current stream comes to this point.
class PinnedCopies {
 public:
  explicit PinnedCopies(const std::vector<at::Tensor>& tensors);

  /// The copies, in the tensors' order, when they are there.
  const std::vector<at::Tensor>& wait();

 private:
  std::vector<at::Tensor> copies_;
  std::unique_ptr<c10::Event> there_;
};

}  // namespace gnmr::nn
