// SPDX-License-Identifier: Apache-2.0
// A fixed-size array on cache-line boundaries, so that a block of units lies in one line.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>

namespace gnmr {

inline constexpr std::size_t kCacheLineBytes = 64;
inline constexpr std::size_t kPageBytes = 4096;

/// Owns `size` values of a trivial type; the size is fixed at construction.
template <class T>
class AlignedArray {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  AlignedArray() = default;

  /// Room for `size` values, none of them set: memory that is never written is never touched.
  explicit AlignedArray(std::size_t size) { allocate(size, 0); }

  /// `size` copies of `value`, beginning `lead_lines` cache lines behind a page. Columns that are walked together
  /// should differ in it: columns at the same place in their pages compete for the same few places in the cache.
  AlignedArray(std::size_t size, T value, std::size_t lead_lines = 0) {
    allocate(size, lead_lines);
    std::fill_n(data_, size_, value);
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  std::size_t size() const { return size_; }
  T& operator[](std::size_t index) { return data_[index]; }
  const T& operator[](std::size_t index) const { return data_[index]; }

 private:
  void allocate(std::size_t size, std::size_t lead_lines) {
    const std::size_t lead_bytes = lead_lines * kCacheLineBytes;
    storage_.reset(::operator new(lead_bytes + size * sizeof(T), std::align_val_t(kPageBytes)));
    data_ = reinterpret_cast<T*>(static_cast<std::byte*>(storage_.get()) + lead_bytes);
    size_ = size;
  }

  struct Free {
    void operator()(void* storage) const { ::operator delete(storage, std::align_val_t(kPageBytes)); }
  };
  std::unique_ptr<void, Free> storage_;
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace gnmr
