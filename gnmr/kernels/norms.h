// SPDX-License-Identifier: Apache-2.0
// The gradient norms of all units in one pass over the gradients, and what clipping needs.
//
//   UnitNorms norms(units);
//   each step: norms.sum_squares(slices, sums, stream);          // sums[unit] on the device
//              ... all-reduce of sums, where there are ranks ...
//              norms.clip(sums, max_norm, {.norms = ..., .gate = ...}, stream);
//
// Goals: the speed of the memory; any element type, alignment and tail, mixed in one call; a sum is finite exactly
// where every element is (squares that overflow or vanish in float32 are summed in double); the same gradients at the
// same addresses modulo 128 give the same bits; nothing waits for the device. Non-goals: loss scales, ranks, what is
// done with a norm.
//
// An object belongs to one thread and one stream at a time. All pointers but those to objects of C++ are to device
// memory and must live until the stream has passed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "gnmr/kernels/chunks.h"

namespace gnmr::kernels {

/// The one gate before an update, in device memory: by how much gradients are scaled, and whether there is an update.
struct Gate {
  double total_norm;    // of all units together, before clipping
  float coefficient;    // max_norm / (total_norm + 1e-6), at most 1; 0 where the norm is not finite
  std::uint32_t apply;  // 0: no update; the clipped norm must be below kLargestNorm, and later kernels may take it away
};

/// Optimizers square gradients in float32: what would be infinite there must not reach them either.
inline constexpr double kLargestNorm = 1e18;

/// What `clip` writes; null: not wanted. The gate always is.
struct ClipOutputs {
  double* norms = nullptr;             // roots of the sums, one per unit
  std::uint8_t* non_finite = nullptr;  // 1 where an element of the unit is not finite, else 0
  Gate* gate = nullptr;
};

/// Sums of squares and norms of a fixed number of units.
class UnitNorms {
 public:
  /// Units that are only clipped with the others (embeddings, say) count too: the caller watches as many as it likes.
  explicit UnitNorms(std::uint32_t units);
  UnitNorms(UnitNorms&&) noexcept;
  UnitNorms& operator=(UnitNorms&&) noexcept;
  ~UnitNorms();

  /// sums[unit] becomes the sum of the squares of all its elements; 0 where it has none. The slices are compared with
  /// those of the last call: the table on the device is made anew only where a shape differs, and addresses are sent
  /// only where one does. Returns whether the table was. An `Error`, with nothing done, as `build_chunks`.
  bool sum_squares(std::span<const Slice> slices, double* sums, void* stream);

  /// The two halves of it, for those who send addresses to the device themselves: the first makes the table, where
  /// these slices have other shapes than the last ones (`has_shape_of`), and returns whether it did; the second finds
  /// slice i at addresses[i], in device memory, and skips a null.
  bool set_shapes(std::span<const Slice> slices, void* stream);
  void sum_squares_at(const void* const* addresses, double* sums, void* stream);

  /// Multiplies the gradients of the table with the gate's coefficient; where that is 1 they are not touched. Where the
  /// norm is NaN they become NaN, as in torch.nn.utils.clip_grad_norm_. A null is skipped.
  void scale_at(void* const* addresses, const Gate* gate, void* stream);

  /// Norms and gate from sums. An infinite `max_norm` clips nothing.
  void clip(const double* sums, double max_norm, const ClipOutputs& outputs, void* stream);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gnmr::kernels
