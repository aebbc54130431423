// SPDX-License-Identifier: Apache-2.0
// Layers with the same input (q, k and v; gate and up) share what their low paths make of it.
//
//   const nn::SharedInput shared(input);   // until the end of the block
//   q->forward(input);                     // quantizes the input
//   k->forward(input);                     // takes that result, and keeps the same FP8 data for backward
//
// Goals: the bits, evidence and state that each layer would have alone; one quantization and one copy instead of
// one per layer; nothing lives longer than this object, but for what a layer keeps for its backward; a layer whose
// input nobody shares pays one comparison. Non-goals: finding out who has the same input: a model says so; what can be
// shared (gnmr/low/operand.h).
//
// Not shared is an input that was changed in place, and tensors of inference mode (whether they were is not known).
//
// It belongs to the thread that makes it: layers that another thread calls, as recomputation in autograd's threads
// does, do not see it. Objects of a thread are nested. It also belongs to the stream that is torch's current one then,
// so a graph that is captured meanwhile (cuda_graph.h) takes nothing from outside.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "gnmr/low/operand.h"

namespace gnmr::nn {

/// While it lives, layers that get this very tensor share its quantization.
class SharedInput {
 public:
  explicit SharedInput(const at::Tensor& input);
  ~SharedInput();
  SharedInput(const SharedInput&) = delete;
  SharedInput& operator=(const SharedInput&) = delete;

  /// What a layer's input is shared by; null: by nobody.
  static SharedInput* of(const at::Tensor& input);

  /// What has been made of the input.
  low::SharedOperands& operands() { return operands_; }

 private:
  at::Tensor input_;  // it is held, so no other tensor has its address
  std::uint32_t version_ = 0;
  void* stream_;
  SharedInput* outer_;
  low::SharedOperands operands_;
};

}  // namespace gnmr::nn
