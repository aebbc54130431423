// SPDX-License-Identifier: Apache-2.0
// What the program that checks the kernels on a GPU is made of: lines of results, and arrays on the device.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace gnmr::kernels::testing {

/// Prints a line a check and counts failures.
class Checks {
 public:
  explicit Checks(bool small) : small_(small) {}

  /// Less of everything: for runs under compute-sanitizer.
  bool is_small() const { return small_; }

  /// `trouble` says what is wrong; empty: nothing.
  void report(const std::string& name, const std::string& trouble) {
    std::printf("%s %s%s%s\n", trouble.empty() ? "ok  " : "FAIL", name.c_str(), trouble.empty() ? "" : ": ",
                trouble.c_str());
    std::fflush(stdout);
    if (!trouble.empty()) ++failures_;
  }
  void expect(const std::string& name, bool good) { report(name, good ? "" : "not so"); }

  int failures() const { return failures_; }

 private:
  bool small_;
  int failures_ = 0;
};

/// Throws where a CUDA call of the program itself failed.
inline void must(cudaError_t status) {
  if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorString(status));
}

/// An array on the device.
template <class Item>
class OnDevice {
 public:
  explicit OnDevice(std::size_t count) : count_(count) {
    must(cudaMalloc(reinterpret_cast<void**>(&data_), (count + 1) * sizeof(Item)));
    must(cudaMemset(data_, 0xee, (count + 1) * sizeof(Item)));  // what is not written is seen
  }
  explicit OnDevice(const std::vector<Item>& items) : OnDevice(items.size()) { put(items); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() { cudaFree(data_); }

  Item* data() const { return data_; }
  void put(const std::vector<Item>& items) {
    must(cudaMemcpy(data_, items.data(), items.size() * sizeof(Item), cudaMemcpyHostToDevice));
  }
  std::vector<Item> get() const {
    std::vector<Item> items(count_);
    must(cudaMemcpy(items.data(), data_, count_ * sizeof(Item), cudaMemcpyDeviceToHost));
    return items;
  }

 private:
  std::size_t count_;
  Item* data_ = nullptr;
};

/// Whether two arrays have the same bits.
template <class Item>
bool same_bits(const std::vector<Item>& a, const std::vector<Item>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(Item)) == 0);
}

void check_norms(Checks& checks);
void check_adamw(Checks& checks);
void check_signals(Checks& checks);
void check_casts(Checks& checks);
void check_rounding(Checks& checks);
void check_row_errors(Checks& checks);
void check_delayed_scales(Checks& checks);
void check_tile_product(Checks& checks);
void check_unit_gather(Checks& checks);
void check_gated_step(Checks& checks);
void check_clipped_norms(Checks& checks);

}  // namespace gnmr::kernels::testing
