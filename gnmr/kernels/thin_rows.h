// SPDX-License-Identifier: Apache-2.0
// A matrix times a few vectors, and sums of rows, in one pass over a large matrix: what a patrol is made of.
//
// Goals: what gnmr/low/thin_product.h computes on the CPU, within rounding; the same groups and signs; the same bits
// in every run; the memory's speed; nothing waits for the device and nothing is allocated. Non-goals: matrices with
// gaps between rows, more than four vectors.
//
// Matrices are row-major. Vectors lie one after the other, so as a thin matrix they are stored by columns. All pointers
// are to device memory and must live until the stream has passed; a workspace begins at a multiple of 16 bytes, its
// contents do not matter, and no other stream may use it meanwhile. An `Error`, with nothing done, where a matrix has
// another type than float32 or bfloat16 or more than 2^24 rows or columns, or where vectors are none or too many.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gnmr/kernels/element.h"

namespace gnmr::kernels {

inline constexpr std::uint64_t kMostRowGroups = 64;
inline constexpr std::uint32_t kMostThinVectors = 4;

/// A large matrix.
struct ThinMatrix {
  const void* data = nullptr;
  ElementType type = ElementType::bfloat16;  // or float32
  std::uint64_t rows = 0;
  std::uint64_t columns = 0;
};

/// How many groups `group_rows` makes: 64, or as many as there are rows.
constexpr std::uint64_t row_groups(std::uint64_t rows) { return rows < kMostRowGroups ? rows : kMostRowGroups; }

/// Whether a row is added (or else taken away): bits of a splitmix64 of the seed.
bool row_sign(std::uint64_t seed, std::uint64_t row);

/// Bytes of workspace for `group_rows`, and for `multiply_transposed`.
std::size_t group_rows_workspace_bytes(const ThinMatrix& matrix);
std::size_t multiply_transposed_workspace_bytes(const ThinMatrix& matrix, std::uint32_t vectors);

/// sums[group * columns + column] becomes the sum of the group's rows, each with its sign; `squared_norm` (null: not
/// wanted) that of the whole matrix, finite exactly where every element is.
void group_rows(const ThinMatrix& matrix, std::uint64_t seed, float* sums, double* squared_norm, void* workspace,
                void* stream);

/// results[k * rows + row] becomes the dot product of a row and vector k, of `columns` elements.
void multiply_thin(const ThinMatrix& matrix, const float* vectors, std::uint32_t count, float* results, void* stream);

/// results[k * columns + column] becomes the dot product of a column and vector k, of `rows` elements.
void multiply_transposed(const ThinMatrix& matrix, const float* vectors, std::uint32_t count, float* results,
                         void* workspace, void* stream);

/// Throws `Error` where a matrix or a number of vectors cannot be.
void check_thin(const ThinMatrix& matrix, std::uint32_t vectors);

}  // namespace gnmr::kernels
