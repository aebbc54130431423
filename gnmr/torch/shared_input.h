// SPDX-License-Identifier: Apache-2.0
// Layers with the same input (q, k and v; gate and up) share what their low paths make of it.
//
//   const nn::SharedInput shared(input);   // until the end of the block
//   q->forward(input);                     // casts the input
//   k->forward(input);                     // takes that cast, and keeps the same codes for backward
//
// Goals: the bits, evidence and memories that each layer would have alone; one cast and one set of codes instead of
// one a layer; nothing lives longer than this object, but for what a layer keeps for its backward; a layer whose input
// nobody shares pays one comparison. Non-goals: finding out who has the same input: a model says so.
//
// Shared are casts that depend on the input and their rule alone. Not stochastic rounding and Hadamard transforms
// (layers have their own random numbers), delayed scaling (their own histories), layers with a hook, an input that was
// changed in place, tensors of inference mode (nobody can tell whether they were), and what backward casts by itself.
//
// It belongs to the thread that makes it: layers that another thread calls, as recomputation in autograd's threads
// does, do not see it. Objects of a thread are nested. It also belongs to the stream that is torch's current one then,
// so a graph that is captured meanwhile (cuda_graph.h) takes nothing from outside.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

#include "gnmr/torch/low_operand.h"

namespace gnmr::nn {

/// While it lives, layers that get this very tensor share its casts.
class SharedInput {
 public:
  explicit SharedInput(const at::Tensor& input);
  ~SharedInput();
  SharedInput(const SharedInput&) = delete;
  SharedInput& operator=(const SharedInput&) = delete;

  /// What a layer's input is shared by; null: by nobody.
  static SharedInput* of(const at::Tensor& input);

  /// `low_operand` of the input as [tokens, in], for a forward product.
  LowOperand operand(LinearPaths& paths, const OperandUse& use, const at::Tensor& matrix);

  /// `save_in_8_bits` of the same.
  SavedMatrix in_8_bits(const at::Tensor& matrix);

 private:
  struct Cast {
    CastRule rule = {};
    LowOperand operand = {};
    CastCounts counts = {};
  };

  at::Tensor input_;  // it is held, so no other tensor has its address
  std::uint32_t version_ = 0;
  void* stream_;
  SharedInput* outer_;
  std::array<Cast, 2> casts_;  // for the forward product alone, and for the weight-gradient too
  SavedMatrix bits_;
};

}  // namespace gnmr::nn
