// SPDX-License-Identifier: Apache-2.0
// What the GPU benchmarks share: memory on the device, and a clock.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <functional>
#include <stdexcept>
#include <vector>

#include "bench/timing.h"

namespace gnmr::bench {

inline constexpr int kRuns = 25;
inline constexpr std::size_t kFlushBytes = std::size_t{1} << 30;

inline void must(cudaError_t status) {
  if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorString(status));
}

/// Memory on the device.
class Memory {
 public:
  explicit Memory(std::size_t bytes) { must(cudaMalloc(&data_, bytes)); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { cudaFree(data_); }
  template <class Item = std::byte>
  Item* as(std::size_t byte = 0) const {
    return reinterpret_cast<Item*>(static_cast<std::byte*>(data_) + byte);
  }

 private:
  void* data_ = nullptr;
};

/// Times work on the device's default stream.
class Clock {
 public:
  Clock() : flush_(kFlushBytes) {
    must(cudaEventCreate(&start_));
    must(cudaEventCreate(&end_));
  }
  ~Clock() {
    cudaEventDestroy(start_);
    cudaEventDestroy(end_);
  }

  /// Milliseconds of each piece of work, medians over runs in which all take turns.
  std::vector<double> medians_ms(const std::vector<std::function<void()>>& works, int runs = kRuns) {
    std::vector<std::vector<double>> times(works.size());
    for (int run = -3; run < runs; ++run) {  // the first three warm up
      for (std::size_t i = 0; i < works.size(); ++i) {
        must(cudaMemsetAsync(flush_.as(), run & 255, kFlushBytes, nullptr));
        must(cudaEventRecord(start_, nullptr));
        works[i]();
        must(cudaEventRecord(end_, nullptr));
        must(cudaEventSynchronize(end_));
        float milliseconds = 0;
        must(cudaEventElapsedTime(&milliseconds, start_, end_));
        if (run >= 0) times[i].push_back(milliseconds);
      }
    }
    std::vector<double> medians;
    for (const std::vector<double>& each : times) medians.push_back(median(each));
    return medians;
  }

 private:
  Memory flush_;
  cudaEvent_t start_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

}  // namespace gnmr::bench
