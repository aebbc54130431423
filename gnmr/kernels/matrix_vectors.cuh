// SPDX-License-Identifier: Apache-2.0
// How kernels read a row-major matrix of bfloat16 or float32: 16 bytes at a time. For .cu files of this layer.
//
// Goals: elements in registers, any shape and alignment; what lies outside the matrix reads as 0. Non-goals: float16,
// gaps between rows.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "gnmr/kernels/element.h"

namespace gnmr::kernels {

/// 16 bytes of a row.
struct Vector {
  unsigned words[4];
};

/// A matrix as a kernel sees it; with less than 2^24 columns offsets in 128 rows fit into 32 bits.
struct MatrixView {
  const void* data;
  unsigned rows;
  unsigned columns;
  bool is_aligned;  // every row begins at a multiple of 16 bytes
};

__host__ __device__ inline bool is_multiple(const void* address, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(address) % bytes == 0;
}

inline MatrixView view_of(const void* data, ElementType type, std::uint64_t rows, std::uint64_t columns) {
  return {data, static_cast<unsigned>(rows), static_cast<unsigned>(columns),
          is_multiple(data, sizeof(uint4)) && columns * bytes_of(type) % sizeof(uint4) == 0};
}

// The bits of a finite magnitude are below these; magnitudes as bits are ordered as numbers.
constexpr unsigned kInfiniteBits = 0x7f800000u;

struct BFloat16 {
  using Scalar = std::uint16_t;
  static constexpr unsigned kPerVector = 8;
  static constexpr unsigned kPerWord = 2;

  /// Element `index` of a vector; the index is known to the compiler.
  static __device__ float value(const Vector& vector, unsigned index) {
    const unsigned word = vector.words[index / 2];
    return __uint_as_float(index % 2 == 0 ? word << 16 : word & 0xffff0000u);
  }
  static __device__ unsigned word_of(const Scalar* data, unsigned count) {
    return count == 0 ? 0u : count == 1 ? data[0] : data[0] | static_cast<unsigned>(data[1]) << 16;
  }
  /// Magnitudes of the elements of a word, side by side.
  static __device__ unsigned magnitudes(unsigned word) { return word & 0x7fff7fffu; }
  static __device__ unsigned finite_magnitudes(unsigned word) {
    const unsigned all = magnitudes(word);
    return all & __vcmpltu2(all, 0x7f807f80u);
  }
  static __device__ unsigned larger(unsigned a, unsigned b) { return __vmaxu2(a, b); }
  /// How many elements of a word are not 0, in the sum of its halves: magnitudes carry into the highest bit.
  static __device__ unsigned not_zero(unsigned word) { return ((magnitudes(word) + 0x7fff7fffu) & 0x80008000u) >> 15; }
  /// The largest of the magnitudes in a word, as bits of a float; and the magnitude of one of them.
  static __device__ unsigned largest(unsigned magnitudes) { return max(magnitudes >> 16, magnitudes & 0xffffu) << 16; }
  static __device__ unsigned widened(Scalar magnitude) { return static_cast<unsigned>(magnitude) << 16; }
};

struct Float32 {
  using Scalar = unsigned;
  static constexpr unsigned kPerVector = 4;
  static constexpr unsigned kPerWord = 1;

  static __device__ float value(const Vector& vector, unsigned index) { return __uint_as_float(vector.words[index]); }
  static __device__ unsigned word_of(const Scalar* data, unsigned count) { return count == 0 ? 0u : data[0]; }
  static __device__ unsigned magnitudes(unsigned word) { return word & 0x7fffffffu; }
  static __device__ unsigned finite_magnitudes(unsigned word) {
    const unsigned all = magnitudes(word);
    return all < kInfiniteBits ? all : 0u;
  }
  static __device__ unsigned larger(unsigned a, unsigned b) { return max(a, b); }
  static __device__ unsigned not_zero(unsigned word) { return (magnitudes(word) + 0x7fffffffu) >> 31; }
  static __device__ unsigned largest(unsigned magnitudes) { return magnitudes; }
  static __device__ unsigned widened(Scalar magnitude) { return magnitude; }
};

/// Where an element of a matrix lies.
template <class Element>
__device__ __forceinline__ const typename Element::Scalar* address_of(const MatrixView& matrix, unsigned row,
                                                                      unsigned column) {
  return static_cast<const typename Element::Scalar*>(matrix.data) + std::size_t{row} * matrix.columns + column;
}

/// A vector at a multiple of 16 bytes.
template <class Element>
__device__ __forceinline__ Vector load_whole(const typename Element::Scalar* from) {
  const uint4 loaded = __ldg(reinterpret_cast<const uint4*>(from));
  return {{loaded.x, loaded.y, loaded.z, loaded.w}};
}

/// The first `count` elements of a vector at any address.
template <class Element>
__device__ __forceinline__ Vector load_part(const typename Element::Scalar* from, unsigned count) {
  Vector vector;
#pragma unroll
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned first = i * Element::kPerWord;
    vector.words[i] = Element::word_of(from + first, first < count ? min(count - first, Element::kPerWord) : 0u);
  }
  return vector;
}

/// Any vector of a matrix.
template <class Element>
__device__ __forceinline__ Vector load_vector(const MatrixView& matrix, unsigned row, unsigned column) {
  if (row >= matrix.rows || column >= matrix.columns) return {};
  const auto* const from = address_of<Element>(matrix, row, column);
  const unsigned count = min(matrix.columns - column, Element::kPerVector);
  if (matrix.is_aligned && count == Element::kPerVector) return load_whole<Element>(from);
  return load_part<Element>(from, count);
}

}  // namespace gnmr::kernels
