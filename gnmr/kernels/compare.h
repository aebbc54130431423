// SPDX-License-Identifier: Apache-2.0
// How far a low result is from a high one, on the device: in full, or from projections on vectors of signs.
//
//   full:    add_error(low, high, count, totals, workspace, stream);
//   patrol:  random_signs(columns, 4, seed, SignLayout::by_columns, signs, stream);    // vectors for thin_rows.h
//            group_rows(low, ~seed, low_sums, size, ...);  group_rows(left, ~seed, left_sums, nullptr, ...);
//            ... multiply both by the signs, with multiply_thin ...
//            add_projections(size, low_projected, high_projected, count, 4, totals, stream);
//
// Goals: what gnmr/low/error_sums.h adds up on the CPU, one pass over both results at the memory's speed, sums
// that ranks and micro-batches can add; the same bits in every run on the same addresses modulo 16; nothing waits for
// the device and nothing is allocated. Squares are summed in double; those of differences of two bfloat16, and of
// bfloat16 elements, eight at a time in float32 first, where they neither overflow nor vanish: sums are within 1e-6 of
// themselves. Non-goals: gaps between rows, float16, what error is too large.
//
// All pointers are to device memory and must live until the stream has passed; a workspace begins at a multiple of 16
// bytes, its contents do not matter, and no other stream may use it meanwhile. An `Error`, with nothing done, for
// another type than float32 or bfloat16, or an address that is missing or not aligned as its elements are.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gnmr/kernels/element.h"

namespace gnmr::kernels {

/// Sums of squares that calls add to, in device memory; all 0 at first. Sums of ranks are sums of the members.
struct ErrorTotals {
  double difference;  // of low - high; infinite where the low result is not finite and the high one is
  double reference;   // of high
  double measured;    // comparisons that were added; 0: nothing is known
};

/// Elements side by side in memory.
struct ResultView {
  const void* data = nullptr;
  ElementType type = ElementType::bfloat16;  // or float32
};

/// Bytes of workspace for `add_error` and `add_square` of that many elements.
std::size_t compare_workspace_bytes(std::uint64_t count);

/// Adds the squares of low - high, each difference rounded to float32, and of high. Nothing is added where an element
/// of high is not finite; a difference that is not finite becomes infinity. The two may have different types.
void add_error(const ResultView& low, const ResultView& high, std::uint64_t count, ErrorTotals* totals, void* workspace,
               void* stream);

/// Adds the squares of all elements to `sum`, which stays finite exactly where every element is.
void add_square(const ResultView& matrix, std::uint64_t count, double* sum, void* workspace, void* stream);

/// Adds what two projections on `vectors` signs say of a low result with the squared norm `size`: `low` and `high` are
/// the results times the signs, `count` numbers each, of all vectors together, in any order that both have. For at most
/// some 100,000 numbers: one block reads them.
void add_projections(const double* size, const float* low, const float* high, std::uint64_t count,
                     std::uint32_t vectors, ErrorTotals* totals, void* stream);

/// How `random_signs` stores a matrix.
enum class SignLayout : std::uint8_t {
  by_rows,     // signs[row * columns + column], as torch has it
  by_columns,  // signs[column * rows + row]: vectors one after the other, as thin_rows.h takes them
};

/// A matrix of 1 and -1 by chance, those of low::random_signs: element (row, column) is bit row * columns + column of
/// the splitmix64 of the seed (see `row_sign`), however it is stored.
void random_signs(std::uint64_t rows, std::uint64_t columns, std::uint64_t seed, SignLayout layout, float* signs,
                  void* stream);

/// Throws `Error` where elements cannot be read.
void check_result(const ResultView& view, std::uint64_t count);

}  // namespace gnmr::kernels
