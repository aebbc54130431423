// SPDX-License-Identifier: Apache-2.0
// What a front end supplies: memory, streams, threads, and the arithmetic of its tensor library.
//
// Goals: everything that must have the library's own bits (its GEMMs, its rounding) or its allocator goes through here,
// and nothing else. Non-goals: decisions: those are made in gnmr/low, once for all front ends.
//
// A front end belongs to nobody and has no state of a layer: one object serves all layers and threads.
#pragma once

#include <cstdint>
#include <vector>

#include "gnmr/core/parallel_for.h"
#include "gnmr/kernels/fp8_product.h"
#include "gnmr/low/matrix.h"
#include "gnmr/recipes/recipe.h"

namespace gnmr::low {

struct NumberCast;

/// FP8 data and scales of a matrix seen from a GEMM, as [m, k]: k is what the GEMM sums over.
struct Fp8Side {
  Matrix codes;   // E4M3 or E5M2, rows without gaps; undefined: this side was not asked for
  Matrix scales;  // one number; m numbers (row); [tiles, m] (tile); rows of blocks (block)
};

/// The front end.
class FrontEnd {
 public:
  virtual ~FrontEnd() = default;

  /// Room for a matrix without gaps, or for so many numbers in one dimension, where `like` is.
  virtual Matrix empty(const Matrix& like, Type type, std::int64_t rows, std::int64_t columns) const = 0;
  virtual Matrix empty_vector(const Matrix& like, Type type, std::int64_t count) const = 0;

  /// Sets every element to 0; nothing waits for a device.
  virtual void zero(const Matrix& matrix) const = 0;

  /// The matrix with elements of this type; itself where it has them.
  virtual Matrix to_type(const Matrix& matrix, Type type) const = 0;

  /// The matrix row by row without gaps; itself where it is.
  virtual Matrix contiguous(const Matrix& matrix) const = 0;

  /// A copy, row by row without gaps.
  virtual Matrix copy(const Matrix& matrix) const = 0;

  /// `rows` x `columns` elements of a matrix without gaps from the `first` on, in the same memory.
  virtual Matrix part(const Matrix& matrix, std::int64_t first, std::int64_t rows, std::int64_t columns) const = 0;

  /// Copies a matrix to the memory of another one of its shape.
  virtual void copy_into(const Matrix& from, const Matrix& to) const = 0;

  /// Every `stride`th row.
  virtual Matrix some_rows(const Matrix& matrix, std::int64_t stride) const = 0;

  /// Bytes in host memory without gaps.
  virtual Matrix bytes_on_host(const Matrix& matrix) const = 0;

  /// Stands for host memory in `empty`.
  virtual Matrix host_like() const = 0;

  /// The matrix in host memory, float32 without gaps; and a matrix of the host where `like` is.
  virtual Matrix on_host(const Matrix& matrix) const = 0;
  virtual Matrix beside(const Matrix& matrix, const Matrix& like) const = 0;

  /// left x right, in their type.
  virtual Matrix multiply(const Matrix& left, const Matrix& right) const = 0;

  /// The same of float32 numbers for a result of `type`. With bfloat16 a device may round operands to TF32 first: its
  /// 11 bits hold what bfloat16 operands and the data of narrow formats are, and scaled data within 2^-12.
  virtual Matrix multiply_numbers(const Matrix& left, const Matrix& right, Type type) const {
    return to_type(multiply(left, right), type);
  }

  /// The high result of a GEMM of a layer, from its operands as they are: input x weight^T, gradient x weight,
  /// gradient^T x input. A layer may have a kernel of its own for it.
  virtual Matrix multiply_high(recipes::Product product, const Matrix& left, const Matrix& right) const = 0;

  /// left x right^T of FP8 data by the library; the right side's grouping and the plan say how scales are taken.
  virtual Matrix multiply_codes(const Fp8Side& left, const Fp8Side& right, recipes::Grouping right_grouping, Type type,
                                const kernels::Fp8Plan& plan) const = 0;

  /// The numbers that FP8 data stand for, float32 [m, k].
  virtual Matrix values_of(const Fp8Side& side, recipes::Grouping grouping) const = 0;

  /// left - right, rounded to their type.
  virtual Matrix subtract(const Matrix& left, const Matrix& right) const = 0;

  /// In how many elements two matrices differ.
  virtual std::uint64_t count_differences(const Matrix& left, const Matrix& right) const = 0;

  /// The sum of the rows of a float32 matrix in host memory, as a matrix of `rows` rows.
  virtual Matrix sum_parts(const Matrix& matrix, std::int64_t rows) const = 0;

  /// A copy whose stretches of `size` columns are multiplied by a matrix [size, size]; what is left of `size` stays.
  virtual Matrix multiply_stretches(const Matrix& matrix, const std::vector<float>& entries,
                                    std::int64_t size) const = 0;

  /// Threads for work on the host: at least `grain` pieces at a time are worth one.
  virtual ParallelFor threads(std::int64_t grain) const = 0;

  /// The stream that the library works on where the matrix is.
  virtual void* stream(const Matrix& on) const = 0;

  /// By the library's own operators, where our loops and kernels do not read a matrix: the operand as numbers, the
  /// largest finite magnitude, the sum of the squares of all elements in double.
  virtual Matrix quantize_by_operators(const Matrix& matrix, const NumberCast& cast) const = 0;
  virtual float amax_by_operators(const Matrix& matrix) const = 0;
  virtual double square_by_operators(const Matrix& matrix) const = 0;
};

/// The matrix as kernels read it: float32 or bfloat16 without gaps.
inline Matrix readable(const FrontEnd& front_end, const Matrix& matrix) {
  return front_end.contiguous(is_operand_type(matrix.type) ? matrix : front_end.to_type(matrix, Type::float32));
}

}  // namespace gnmr::low
