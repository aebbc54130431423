// SPDX-License-Identifier: Apache-2.0
#include "gnmr/torch/pinned_copies.h"

#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace gnmr::nn {

PinnedCopies::PinnedCopies(const std::vector<at::Tensor>& tensors) {
  if (tensors.empty()) return;
  const c10::Device device = tensors.front().device();
  for (const at::Tensor& tensor : tensors) {
    copies_.push_back(at::empty(tensor.sizes(), tensor.options().device(at::kCPU).pinned_memory(true)));
    copies_.back().copy_(tensor, /*non_blocking=*/true);
  }
  there_ = std::make_unique<c10::Event>(device.type());
  there_->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
}

const std::vector<at::Tensor>& PinnedCopies::wait() {
  if (there_ != nullptr) there_->synchronize();
  return copies_;
}

}  // namespace gnmr::nn
