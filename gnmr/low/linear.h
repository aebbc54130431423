// SPDX-License-Identifier: Apache-2.0
// A linear layer whose three GEMMs can each run on a low or on a high path; free of any tensor library. It has G >= 1
// members, each with rows and a weight of its own.
//
//   forward           y  = x w^T      [tokens, out]
//   input gradient    dx = g w        [tokens, in]
//   weight gradient   dw = g^T x      [G * out, in]
//
// Design of gnmr/low, from the bottom up:
//
//   matrix.h          an address with a shape, and what keeps its memory alive
//   front_end.h       what a tensor library supplies: memory, streams, threads, its own GEMM. gnmr/torch implements it
//                     with LibTorch, python/src with torch from Python; decisions are made here, once
//   quantize.h        a matrix as rounded numbers or as FP8 data;  gemm.h  GEMMs of such operands, and who makes them
//   amax_history.h    delayed scaling on the host
//   device_numbers.h  the same and all measurements of a step on a device, in rows of one array, so that nothing waits
//   error_sums.h      how far a low path is off: in full (trial), or by projection (patrol)
//   linear_paths.h    the state of a member: the switch of each GEMM, its history, its measurements, a hook for tests
//   operand.h         an operand of a member on its way through all of that; operands that layers with one input share
//   members.h         whose rows are whose: members' parts of one matrix, of one operand
//   linear.h          forward and backward. A front end's autograd function calls these two, and keeps `Saved` between
//
// Goals: every front end has the same bits; members have those of layers of their own; the low path's state is updated
// in recovery too. A refresh of scales is a call on the history. Error sums may stay on the device.
// Non-goals: biases and high kernels (the front end's), deciding what runs low.
#pragma once

#include <array>
#include <cstddef>

#include "gnmr/low/front_end.h"
#include "gnmr/low/gemm.h"
#include "gnmr/low/linear_paths.h"
#include "gnmr/low/matrix.h"
#include "gnmr/low/members.h"
#include "gnmr/low/operand.h"

namespace gnmr::low {

/// What a forward leaves for its backward, of all members. Of each operand there is what backward needs: the matrix, or
/// the quantized matrix, or its 8 bits; the matrix too where only some members need it.
struct Saved {
  Matrix weight = {};
  LowOperand low_weight = {};
  Matrix projected_input = {};  // for a patrol
  Matrix input = {};
  LowOperand low_input = {};
  SavedMatrix bits = {};  // of the input

  /// As front ends keep it: undefined matrices where there is nothing.
  static constexpr std::size_t kParts = 10;
  std::array<Matrix, kParts> parts() const;

  /// The same again, where a recipe is that of the layer.
  static Saved from_parts(const Recipe* recipe, const std::array<Matrix, kParts>& parts);
};

/// What of a forward is wanted.
struct ForwardWishes {
  SharedOperands* shared = nullptr;  // null: no other layer has this input; several members share its 8 bits alone
  bool keeps_low_input = true;       // backward has a use for the quantized operands
  bool keeps_low_weight = true;
};

/// The result [tokens, out] of input [tokens, in] and weight [G * out, in].
struct ForwardResult {
  Matrix output = {};
  Saved saved = {};
};
ForwardResult forward(const FrontEnd& front_end, const Members& members, const Matrix& input, const Matrix& weight,
                      const ForwardWishes& wishes = {});

/// The gradients of input and weight; undefined where they are not wanted. Switches are those of the forward: a front
/// end whose switches may move between the two puts them back meanwhile.
struct Gradients {
  Matrix input = {};
  Matrix weight = {};
};
Gradients backward(const FrontEnd& front_end, const Members& members, const Saved& saved, const Matrix& gradient,
                   bool wants_input, bool wants_weight);

}  // namespace gnmr::low
