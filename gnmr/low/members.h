// SPDX-License-Identifier: Apache-2.0
// The members of a layer: G linear layers whose matrices lie in one, as grouped experts have them. A linear layer is
// one member, which has all rows.
//
//   input, output, their gradients   [rows, n], sorted by member: member g has rows offsets[g] to offsets[g + 1]
//   weight, its gradient             [G * out, in]: [G, out, in] seen as a matrix, `out` rows for each member
//   FP8 data by rows                 as the matrix; by columns: the members' [n, rows] one after the other
//   their scales                     the members' one after the other; no scale is of two members. Where 128 rows have
//                                    one, member g's begin at group first_row / 128 + g, so some groups may be unused
//
// Each member has a `LinearPaths` of its own: switch, seed, amax history, measurements; it is a unit, or several.
// Recipe, hook and what is saved in 8 bits are the layer's: the same in all. What has no rows does not run: it is not
// quantized, its histories (that of its weight too) stay as they are, nothing is measured, and its weight's gradient is
// 0.
//
// Row offsets are on the host so far, and members run one after the other on parts of the layer's matrices. Kernels for
// all members at once take the same matrices whole, with offsets on a device: sizes of matrices are functions of rows
// and G alone, and where a member begins follows from its own offset. What changes then are the loops over members in
// linear.cpp: the host does not know who has rows, so all members run low, and the rows of those in recovery are
// overwritten. Amax, squares and errors go to consecutive rows of one `DeviceNumbers`, where a member without rows
// leaves none; who was measured, and whose scale has an observation behind it, is then known there, not on the host.
//
// Goals: one layer for G = 1 and G > 1, to the same bits; with one member no matrix is looked at, copied or made for
// this. Non-goals: routing rows to members, deciding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "gnmr/low/front_end.h"
#include "gnmr/low/gemm.h"
#include "gnmr/low/linear_paths.h"
#include "gnmr/low/matrix.h"

namespace gnmr::low {

/// Where each member's rows begin: G + 1 numbers that ascend from 0 to the number of rows. They are 32 bits wide, as
/// libraries' grouped GEMMs take them. Without any there is one member, and all rows are its.
struct RowOffsets {
  std::span<const std::int32_t> offsets = {};
  Place place = Place::host;  // on a device: not supported yet
};

/// How rows of a matrix are divided among members.
enum class Split : std::uint8_t {
  by_offsets,  // what has a row per token
  evenly,      // weights
};

constexpr Split split_of(Operand operand) { return operand == Operand::weight ? Split::evenly : Split::by_offsets; }
constexpr Split split_of_result(Product product) {
  return product == Product::weight_gradient ? Split::evenly : Split::by_offsets;
}

/// Which way the members' matrices lie in that of all.
enum class Layout : std::uint8_t {
  by_rows,     // [rows, n]
  by_columns,  // the members' [n, rows] one after the other
};

/// The members of one layer, for one forward or backward: it holds none of what it names.
class Members {
 public:
  /// A linear layer.
  Members(LinearPaths& only) : paths_(&only, 1) {}

  /// Members in the order of their rows; backward has the offsets of the forward.
  Members(std::span<LinearPaths> paths, const RowOffsets& rows) : paths_(paths), rows_(rows) {}

  std::size_t count() const { return paths_.size(); }
  LinearPaths& operator[](std::size_t member) const { return paths_[member]; }

  /// Whether there is one member that has all rows: then every part of a matrix is the matrix itself.
  bool is_one() const { return rows_.offsets.empty(); }

  /// Whether it runs: with one member always.
  bool runs(std::size_t member) const { return is_one() || rows_.offsets[member] != rows_.offsets[member + 1]; }

  /// What all have in common: recipe, hook, saving in 8 bits.
  const LinearPaths& layer() const { return paths_.front(); }

  /// An `Error` where offsets or members do not fit together, or do not fit matrices of so many rows.
  void check(std::int64_t rows, std::int64_t weight_rows) const;

  /// As parts need the matrix: row by row without gaps.
  Matrix divisible(const FrontEnd& front_end, const Matrix& matrix) const {
    return is_one() || !matrix.defined() ? matrix : front_end.contiguous(matrix);
  }

  /// A member's part of a matrix without gaps, in the same memory.
  Matrix part(const FrontEnd& front_end, const Matrix& all, Split split, std::size_t member,
              Layout layout = Layout::by_rows) const;
  LowOperand part(const FrontEnd& front_end, const LowOperand& all, Split split, std::size_t member) const;

  /// Copies a member's part to its place in the matrix of all, which is made where there is none. With one member the
  /// part becomes the matrix.
  void place(const FrontEnd& front_end, Matrix part, Split split, std::size_t member, Matrix& all,
             Layout layout = Layout::by_rows) const;

  /// The members' operands as one; the places of those that are undefined are left as they are. All are numbers where
  /// one is.
  LowOperand joined(const FrontEnd& front_end, std::span<const LowOperand> parts, Split split) const;

 private:
  struct Rows {
    std::int64_t first;
    std::int64_t count;
  };

  Rows rows_of(Split split, std::size_t member, std::int64_t all) const;
  std::int64_t all_rows(Split split, std::int64_t part_rows) const;
  Fp8Side side_part(const FrontEnd& front_end, const Fp8Side& all, recipes::Grouping grouping, Split split,
                    std::size_t member, Layout layout) const;
  void place_side(const FrontEnd& front_end, const Fp8Side& part, recipes::Grouping grouping, Split split,
                  std::size_t member, Layout layout, Fp8Side& all) const;

  std::span<LinearPaths> paths_;
  RowOffsets rows_ = {};
};

}  // namespace gnmr::low
