// SPDX-License-Identifier: Apache-2.0
// Numbers on their way from a CUDA device to the host.
//
// Goals: taking them waits for nothing and, after the first steps, allocates nothing; reading them waits for just what
// made them, not for what was queued since. Non-goals: large tensors.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <memory>
#include <vector>

namespace gnmr::nn {

/// Pinned memory and events that copies give back. It belongs to one thread.
class PinnedPool {
 public:
  struct Slot {
    at::Tensor bytes;
    std::unique_ptr<c10::Event> there;
  };

  /// A slot with room for so many bytes, for copies from this device.
  Slot take(std::int64_t bytes, const c10::Device& device);
  void give_back(Slot slot) { free_.push_back(std::move(slot)); }

 private:
  std::vector<Slot> free_;
};

/// Copies of tensors of bytes of one device, as they are when its current stream comes to this point.
class PinnedCopies {
 public:
  PinnedCopies(const std::vector<at::Tensor>& tensors, std::shared_ptr<PinnedPool> pool);
  PinnedCopies(PinnedCopies&&) noexcept = default;
  PinnedCopies& operator=(PinnedCopies&&) noexcept = default;
  ~PinnedCopies();

  /// The copies, in the tensors' order, when they are there.
  const std::vector<at::Tensor>& wait();

 private:
  std::shared_ptr<PinnedPool> pool_;
  std::vector<PinnedPool::Slot> slots_;
  std::vector<at::Tensor> copies_;
};

}  // namespace gnmr::nn
