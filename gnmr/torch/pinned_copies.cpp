// SPDX-License-Identifier: Apache-2.0
#include "gnmr/torch/pinned_copies.h"

#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

namespace gnmr::nn {

PinnedPool::Slot PinnedPool::take(std::int64_t bytes, const c10::Device& device) {
  const auto fits = [&](const Slot& slot) { return slot.bytes.numel() >= bytes; };
  const auto found = std::find_if(free_.begin(), free_.end(), fits);
  if (found == free_.end()) {
    return {at::empty({bytes}, at::TensorOptions().dtype(at::kByte).pinned_memory(true)),
            std::make_unique<c10::Event>(device.type())};
  }
  Slot slot = std::move(*found);
  free_.erase(found);
  return slot;
}

PinnedCopies::PinnedCopies(const std::vector<at::Tensor>& tensors, std::shared_ptr<PinnedPool> pool)
    : pool_(std::move(pool)) {
  for (const at::Tensor& tensor : tensors) {
    const c10::Device device = tensor.device();
    slots_.push_back(pool_->take(tensor.numel(), device));
    copies_.push_back(slots_.back().bytes.narrow(0, 0, tensor.numel()));
    copies_.back().copy_(tensor, /*non_blocking=*/true);
    slots_.back().there->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  }
}

PinnedCopies::~PinnedCopies() {
  if (pool_ == nullptr) return;
  try {
    wait();  // a copy that is still to be made must not meet the next one
  } catch (const c10::Error&) {
    return;  // the device has failed: whoever reads from it gets the error
  }
  for (PinnedPool::Slot& slot : slots_) pool_->give_back(std::move(slot));
}

const std::vector<at::Tensor>& PinnedCopies::wait() {
  for (const PinnedPool::Slot& slot : slots_) slot.there->synchronize();
  return copies_;
}

}  // namespace gnmr::nn
