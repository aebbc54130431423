// SPDX-License-Identifier: Apache-2.0
// What a step sends the device, and the device the host, through pinned memory. For .cu files of this layer.
//
// Kernels read and write the host's memory themselves: a graph that is nothing but kernels in a row is launched in a
// fraction of the time of one with copies in it.
//
// Goals: two steps may be under way, and the host waits for neither. Non-goals: large arrays.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "gnmr/kernels/cuda_memory.h"

namespace gnmr::kernels {

using Word = std::uint32_t;  // what is copied at a time

// More blocks than these would not make the bus faster.
constexpr unsigned kCopyThreads = 256;
constexpr unsigned kMostCopyBlocks = 32;

inline std::size_t words_for(std::size_t bytes) { return (bytes + sizeof(Word) - 1) / sizeof(Word); }

inline unsigned blocks_to_copy(std::size_t words) {
  return std::min(kMostCopyBlocks, std::max(1u, blocks_for(words, kCopyThreads)));
}

/// Copies words, all threads of a grid of `kCopyThreads` a block together.
__device__ inline void copy_words(const Word* __restrict__ from, Word* __restrict__ to, std::size_t count) {
  const std::size_t stride = std::size_t{gridDim.x} * kCopyThreads;
  for (std::size_t i = std::size_t{blockIdx.x} * kCopyThreads + threadIdx.x; i < count; i += stride) to[i] = from[i];
}

/// Memory of the host that the device reads and writes.
class PinnedBytes {
 public:
  PinnedBytes() = default;
  PinnedBytes(const PinnedBytes&) = delete;
  PinnedBytes& operator=(const PinnedBytes&) = delete;
  ~PinnedBytes() { cudaFreeHost(data_); }

  /// Room for so many bytes; what it held is forgotten where there was too little.
  void reserve(std::size_t bytes) {
    if (bytes <= capacity_) return;
    check_cuda(cudaFreeHost(std::exchange(data_, nullptr)), "cudaFreeHost");
    capacity_ = 0;
    check_cuda(cudaMallocHost(&data_, bytes), "cudaMallocHost");
    capacity_ = bytes;
  }

  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  void* data_ = nullptr;
  std::size_t capacity_ = 0;
};

/// The mail of one of the two steps that may be under way.
struct MailSlot {
  MailSlot() { check_cuda(cudaEventCreateWithFlags(&there, cudaEventDisableTiming), "cudaEventCreate"); }
  MailSlot(const MailSlot&) = delete;
  MailSlot& operator=(const MailSlot&) = delete;
  ~MailSlot() {
    cudaEventSynchronize(there);
    cudaEventDestroy(there);
  }

  /// Waits until the numbers of its step are there.
  void wait() {
    if (!has_passed) check_cuda(cudaEventSynchronize(there), "cudaEventSynchronize");
    has_passed = true;
  }

  /// Everything of step `step` has been queued on the stream.
  void sent(std::uint64_t step, cudaStream_t stream) {
    has_passed = false;
    check_cuda(cudaEventRecord(there, stream), "cudaEventRecord");
    number = step;
  }

  PinnedBytes inputs;        // from the host
  PinnedBytes results;       // of the device
  std::uint64_t number = 0;  // of the step; 0: none
  bool has_passed = true;    // somebody has seen that its numbers are there
  cudaEvent_t there = nullptr;
};

/// The slot of a step, which is numbered from 1; an `Error` where two more have been queued since.
template <class Slot>
Slot& slot_of(std::array<Slot, 2>& slots, std::uint64_t number) {
  Slot& slot = slots[number % 2];
  if (number == 0 || slot.number != number) {
    throw Error("[numbers of a step] expected one of the last two, got step " + std::to_string(number));
  }
  return slot;
}

}  // namespace gnmr::kernels
