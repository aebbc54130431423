// SPDX-License-Identifier: Apache-2.0
// Device and pinned memory, and tables that go from one to the other without waiting. For .cu files of this layer.
//
// Goals: every CUDA call is checked; memory goes back by itself. Non-goals: pools; growing is rare here.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "gnmr/core/error.h"

namespace gnmr::kernels {

/// Throws `Error` with CUDA's own words where a call failed.
inline void check_cuda(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  throw Error(std::string("[cuda] ") + what + ": " + cudaGetErrorString(status));
}

/// Throws `Error` where the last launch failed.
inline void check_launch(const char* kernel) { check_cuda(cudaGetLastError(), kernel); }

inline cudaStream_t stream_of(void* stream) { return static_cast<cudaStream_t>(stream); }

/// Blocks of `threads` that cover `count`.
inline unsigned blocks_for(std::uint64_t count, unsigned threads) {
  return static_cast<unsigned>((count + threads - 1) / threads);
}

/// An array in device memory. Growing it forgets what it held, and waits for the device.
template <class Item>
class DeviceArray {
 public:
  DeviceArray() = default;
  explicit DeviceArray(std::size_t count) { reserve(count); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { cudaFree(data_); }

  /// Makes room for `count` items, and for a little more where there was too little.
  void reserve(std::size_t count) {
    if (count <= capacity_) return;
    const std::size_t capacity = count + capacity_ / 4;
    check_cuda(cudaFree(std::exchange(data_, nullptr)), "cudaFree");
    capacity_ = 0;
    check_cuda(cudaMalloc(reinterpret_cast<void**>(&data_), capacity * sizeof(Item)), "cudaMalloc");
    capacity_ = capacity;
  }

  /// Sets every byte to 0, on the stream.
  void clear(cudaStream_t stream) {
    check_cuda(cudaMemsetAsync(data_, 0, capacity_ * sizeof(Item), stream), "cudaMemsetAsync");
  }

  Item* data() const { return data_; }

 private:
  Item* data_ = nullptr;
  std::size_t capacity_ = 0;
};

/// Bytes that the host writes now and then and kernels read; the copy waits for nothing.
///
/// Two pinned buffers take turns: the host waits only where it writes a third time before the first copy was made. All
/// copies and all kernels that read them must be on one stream.
class UploadedBytes {
 public:
  UploadedBytes() = default;
  UploadedBytes(const UploadedBytes&) = delete;
  UploadedBytes& operator=(const UploadedBytes&) = delete;
  ~UploadedBytes() {
    for (Staging& staging : staging_) {
      if (staging.copied != nullptr) cudaEventSynchronize(staging.copied);
      cudaFreeHost(staging.data);
      if (staging.copied != nullptr) cudaEventDestroy(staging.copied);
    }
  }

  /// Where the host writes the next `bytes`, followed by `send`.
  std::byte* begin(std::size_t bytes) {
    turn_ = 1 - turn_;
    Staging& staging = staging_[turn_];
    if (staging.copied == nullptr) {
      check_cuda(cudaEventCreateWithFlags(&staging.copied, cudaEventDisableTiming), "cudaEventCreate");
    }
    check_cuda(cudaEventSynchronize(staging.copied), "cudaEventSynchronize");
    if (bytes > staging.capacity) {
      const std::size_t capacity = bytes + staging.capacity / 4;
      check_cuda(cudaFreeHost(std::exchange(staging.data, nullptr)), "cudaFreeHost");
      staging.capacity = 0;
      check_cuda(cudaMallocHost(&staging.data, capacity), "cudaMallocHost");
      staging.capacity = capacity;
    }
    bytes_ = bytes;
    return static_cast<std::byte*>(staging.data);
  }

  /// Copies what was written to the device, behind all that the stream has to do.
  void send(cudaStream_t stream) {
    Staging& staging = staging_[turn_];
    device_.reserve(bytes_);
    check_cuda(cudaMemcpyAsync(device_.data(), staging.data, bytes_, cudaMemcpyHostToDevice, stream),
               "cudaMemcpyAsync");
    check_cuda(cudaEventRecord(staging.copied, stream), "cudaEventRecord");
  }

  const std::byte* device() const { return device_.data(); }

 private:
  struct Staging {
    void* data = nullptr;
    std::size_t capacity = 0;
    cudaEvent_t copied = nullptr;
  };
  std::array<Staging, 2> staging_ = {};
  std::size_t turn_ = 0;
  std::size_t bytes_ = 0;
  DeviceArray<std::byte> device_;
};

}  // namespace gnmr::kernels
